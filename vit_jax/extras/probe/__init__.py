"""Linear probe whose layers, pooling and penalty are chosen: `probe`."""
