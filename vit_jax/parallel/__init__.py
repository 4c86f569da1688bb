"""Device meshes, sharding of arrays, and coordination of processes."""
