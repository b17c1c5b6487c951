# Tests that are a file with RUN lines: .mlir for dialects and passes, .test for
# tools. Their tools come from build/bin and from LLVM.
import glob
import os
import shutil
import sys

sys.path.insert(0, os.path.dirname(__file__))
import tiers

config.name = "tessera"
config.test_format = tiers.ShTest(config.tessera_source_dir)
if not tiers.is_fast():
    config.available_features.add("slow")
if tiers.is_sweep():
    config.available_features.add("sweep")
config.suffixes = [".mlir", ".test"]
# Inputs of other tests.
config.excludes = ["Inputs", "corpus", *tiers.sweeps(config.tessera_source_dir)]
config.test_source_root = os.path.dirname(__file__)
config.test_exec_root = config.tessera_test_exec_root

config.environment["PATH"] = os.pathsep.join(
    [config.tessera_bin_dir, config.llvm_tools_dir, os.environ["PATH"]]
)
# Programs and kernels that several tests compile are compiled once in a run: keys
# have the compiler's own hash, and run-tests.sh begins with an empty cache.
config.environment["XDG_CACHE_HOME"] = os.path.join(config.tessera_test_exec_root, "cache")
# Tests run what they compile on this machine, unless they name targets.
config.environment["TESSERA_TARGET"] = "cpu:native"
# A failing pass must not print through a symbolizer for seconds.
config.environment["LLVM_DISABLE_SYMBOLIZATION"] = "1"
# Debian's PyTorch uses AMX without asking the kernel for it, and is killed.
for name in ("ONEDNN_MAX_CPU_ISA", "DNNL_MAX_CPU_ISA"):
    config.environment[name] = "AVX512_CORE"

config.substitutions.append(("%source", config.tessera_source_dir))
config.substitutions.append(("%bin", config.tessera_bin_dir))
config.substitutions.append(("%python", config.python))
# The first seed of generated graphs (test/metamorphic/README.md).
seed = os.environ.get("TESSERA_METAMORPHIC_SEED", "1")
config.substitutions.append(("%metamorphic-seed", seed))

# These tests run tools that link MLIR, and FileCheck, which LLVM brings.
if config.tessera_build_compiler:
    config.available_features.add("compiler")
else:
    config.unsupported = True
    lit_config.note("SKIP: files with RUN lines need the compiler; "
                    "-DTESSERA_BUILD_COMPILER=OFF leaves it out")

if os.path.exists(os.path.join(config.tessera_source_dir, ".git")):
    config.available_features.add("checkout")

# Python with the packages that tests compare with: scripts/install-deps.sh
# --oracles makes it.
oracles = os.path.join(config.tessera_source_dir, ".venv")
config.substitutions.append(("%oracle-python", os.path.join(oracles, "bin", "python")))
if os.path.exists(os.path.join(oracles, "ready")):
    config.available_features.add("oracles")

# Where the compiler looks for it, too (compiler/target/cuda/Cubin.cpp).
cuda = os.path.join(os.environ.get("CUDA_HOME", "/usr/local/cuda"), "bin")
if shutil.which("nvcc") or shutil.which("nvcc", path=cuda):
    config.available_features.add("nvcc")

# From NVIDIA's wheel, which is among the oracles, or a CUDA toolkit's.
wheel = glob.glob(os.path.join(oracles, "lib", "python3*", "site-packages", "nvidia", "cu*", "bin"))
nvdisasm = next(filter(None, (shutil.which("nvdisasm", path=path) for path in [*wheel, None, cuda])), None)
if nvdisasm:
    config.available_features.add("nvdisasm")
    config.substitutions.append(("%nvdisasm", nvdisasm))
else:
    lit_config.note("SKIP: tests of SASS need nvdisasm: scripts/install-deps.sh --oracles")

if shutil.which("chromium"):
    config.available_features.add("chromium")
else:
    lit_config.note("SKIP: tests of pages in a browser need chromium, a package of Debian")
