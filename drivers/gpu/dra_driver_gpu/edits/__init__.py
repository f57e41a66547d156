"""What a container gets: device nodes, the driver's libraries and programs, and the way to an MPS daemon."""
