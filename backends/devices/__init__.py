"""Device profiles, one YAML file each."""
