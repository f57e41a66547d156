"""What a container gets: device nodes, the driver's files, and hooks of the container toolkit, as CDI edits."""
