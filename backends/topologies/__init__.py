"""The built-in topologies: one YAML file each, described in gecompiler.backends.topology.read."""
