"""python -m lab_engine.make_draft --cause CAUSE OUT: a copy of a draft with one thing wrong in its files, as it happens to people.

    key_prefix  the decoder layer is saved as `layers.0.*`, as some training libraries do: its trained weights find no place here
    use_aux     config.json says `use_aux_hidden_state: false`: the target is never told to capture layers
    d2t_twice   the offsets in `d2t` were taken for token ids and "put right": the row numbers are subtracted a second time

Needs no torch: a safetensors file is a length, a JSON header and raw data.
"""

import argparse
import json
import pathlib
import struct
import sys

from lab_engine.server_args import folder

CAUSES = ("key_prefix", "use_aux", "d2t_twice")


def make(source, out, cause):
    """Write the folder `out`, which must not exist yet."""
    out.mkdir(parents=True)
    config = json.loads((source / "config.json").read_text())
    if cause == "use_aux":
        config["eagle_config"]["use_aux_hidden_state"] = False
    (out / "config.json").write_text(json.dumps(config, indent=2) + "\n")
    for shard in sorted(source.glob("*.safetensors")):
        header, data = read(shard)
        if cause == "key_prefix":
            header = {name.replace("model.midlayer.", "model.layers.0."): about for name, about in header.items()}
        if cause == "d2t_twice" and "d2t" in header:
            begin, end = header["d2t"]["data_offsets"]
            rows = (end - begin) // 8
            offsets = struct.unpack_from(f"<{rows}q", data, begin)
            struct.pack_into(f"<{rows}q", data, begin, *(offset - row for row, offset in enumerate(offsets)))
        write(out / shard.name, header, data)


def read(path):
    """(header, data as a bytearray)."""
    raw = path.read_bytes()
    size = int.from_bytes(raw[:8], "little")
    return json.loads(raw[8 : 8 + size]), bytearray(raw[8 + size :])


def write(path, header, data):
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    path.write_bytes(len(text).to_bytes(8, "little") + text + data)


def main(argv):
    p = argparse.ArgumentParser(prog="python -m lab_engine.make_draft", description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    p.add_argument("--cause", choices=CAUSES, required=True)
    p.add_argument("--source", default="tiny-eagle3", help="folder, or the name of one below models/ [tiny-eagle3]")
    p.add_argument("out", type=pathlib.Path, help="folder to make")
    args = p.parse_args(argv)
    source = folder(args.source)
    if not (source / "config.json").is_file():
        p.error(f"no draft at {args.source!r}")
    if args.out.exists():
        p.error(f"{args.out} is there already")
    make(source, args.out, args.cause)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
