"""The processes that mpirun started. Standard library only."""
import pathlib

RANK_VARIABLES = (b"OMPI_COMM_WORLD_RANK=", b"PMI_RANK=", b"RANK=")


def ranks_of(launcher):
    """Rank to process id of all that a launcher started."""
    children, found = {}, {}
    for entry in pathlib.Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            fields = (entry / "stat").read_text().rsplit(")", 1)[1].split()
            environment = (entry / "environ").read_bytes().split(b"\0")
        except OSError:
            continue
        children.setdefault(int(fields[1]), []).append(int(entry.name))
        for word in environment:
            if word.startswith(RANK_VARIABLES):
                found.setdefault(int(entry.name), int(word.split(b"=")[1]))
    reached, ranks = [launcher], {}
    for process in reached:
        reached += children.get(process, [])
        if process in found:
            ranks[found[process]] = process
    return ranks
