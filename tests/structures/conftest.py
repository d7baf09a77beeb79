import pytest


@pytest.fixture
def write(tmp_path):
    """Writes a file with text or bytes, and gives its path."""

    def written(content, name="file"):
        path = tmp_path / name
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return str(path)

    return written
