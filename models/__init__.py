"""Weight-free models of real size, built from YAML specs."""
