"""Writes a spec with 80 layers of another one: deep.py SPEC FOLDER"""

import json
import os
import sys

config = json.load(open(sys.argv[1] + "/config.json"))
config["num_hidden_layers"] = 80
os.makedirs(sys.argv[2], exist_ok=True)
json.dump(config, open(sys.argv[2] + "/config.json", "w"))
