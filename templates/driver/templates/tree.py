def main(directory: Path = Path("tree")) -> None:
    """Write the machine as files, `tree/host`, with all that commands need of a node: device nodes and a boot ID."""
    shutil.rmtree(directory, ignore_errors=True)
    with TemporaryDirectory() as temporary:
        node = FakeNode(Path(temporary))
        plug(node)
        node.write_archive(Path(temporary) / "node.tar.gz", include=INCLUDE)
        FakeNode.from_archive(Path(temporary) / "node.tar.gz", directory)
    print(f"wrote {directory / 'host'}: edit it, and give it to commands as --host-root {directory / 'host'}")


if __name__ == "__main__":
    main()
