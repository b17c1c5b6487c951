// tessera doctor: reports what this machine has, with one line of advice each.
#include "compiler/cache/UserCache.h"
#include "compiler/target/cpu/CpuTarget.h"
#include "compiler/target/cuda/Cubin.h"
#include "hardware/Targets.h"
#include "runtime/support/CpuFeatures.h"
#include "runtime/support/PeakFlops.h"
#include "runtime/weights/WeightCache.h"
#include "tools/tessera/Calibrate.h"
#include "tools/tessera/Commands.h"
#include <CLI/CLI.hpp>
#include <cstring>
#include <dlfcn.h>
#include <fmt/format.h>
#include <fstream>
#include <memory>
#include <thread>

using namespace tessera;

// A value of /proc/meminfo in GiB; 0 where it is missing.
static double memInfo(const std::string &key) {
  std::ifstream file("/proc/meminfo");
  for (std::string line; std::getline(file, line);)
    if (line.starts_with(key + ":"))
      return std::stod(line.substr(key.size() + 1)) / (1 << 20);
  return 0;
}

static std::string firstLine(const char *path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  return line;
}

// Whether the dynamic loader finds a library, as the runtime would.
static bool canLoad(std::initializer_list<const char *> names) {
  for (const char *name : names)
    if (void *handle = dlopen(name, RTLD_LAZY | RTLD_LOCAL)) {
      dlclose(handle);
      return true;
    }
  return false;
}

static void say(const char *what, const std::string &found,
                const std::string &advice) {
  fmt::print("{:<10} {}\n{:<10}   {}\n", what, found, "", advice);
}

// What the best CPU target is that this processor runs.
static std::string kernelsHere() {
  for (const TileTarget &target : cpuTileTargets()) {
    if (!cpu::missingFeatures(target.name).empty())
      continue;
    const std::string name = target.name.substr(strlen("cpu:"));
    if (target.matrixTiles)
      return "runs all kernels, including " + name;
    return fmt::format("runs the {} kernels{}", name,
                       target.lanes == 8 ? ", about half the speed of avx512"
                                         : "");
  }
  return "has no AVX2: generated kernels cannot run here; use a newer machine";
}

static void reportProcessor() {
  say("processor", CpuFeatures::brand(), kernelsHere());
  unsigned threads = std::max(1u, std::thread::hardware_concurrency());
  PeakFlops fp32 = measurePeakFlops(PeakType::fp32, threads),
            bf16 = measurePeakFlops(hasBf16Matrices() ? PeakType::bf16Matrix
                                                      : PeakType::bf16,
                                    threads);
  say("peak",
      fmt::format("fp32 {:.0f} GFLOP/s ({}), bf16 {:.0f} GFLOP/s ({})",
                  fp32.perSecond / 1e9, fp32.instruction, bf16.perSecond / 1e9,
                  bf16.instruction),
      hasBf16Matrices() || bf16DotPays()
          ? "bf16 matmuls are faster than fp32: try precision.compute: bf16"
          : "bf16 matmuls are not faster than fp32: operands are upcast first. "
            "bf16 saves memory, not time");
  say("threads", std::to_string(threads),
      threads == 1 ? "one thread only; training is sequential"
                   : "all used by default; --threads N uses fewer");
}

static void reportMemory() {
  double total = memInfo("MemTotal"), available = memInfo("MemAvailable");
  constexpr double kBytesAParameter = 4 * 4; // value, gradient, two moments
  constexpr double kShareOfState = 0.8;      // the rest is for activations
  double parameters = available * (1 << 30) * kShareOfState / kBytesAParameter;
  say("memory",
      fmt::format("{:.1f} GiB, {:.1f} GiB available", total, available),
      fmt::format("AdamW in fp32 needs 16 bytes per parameter, plus "
                  "activations: about {:.1f}B parameters fit",
                  parameters / 1e9));
  std::string pages = firstLine("/sys/kernel/mm/transparent_hugepage/enabled");
  bool huge = pages.find("[always]") != std::string::npos ||
              pages.find("[madvise]") != std::string::npos;
  say("huge pages", pages.empty() ? "unknown" : pages,
      huge ? "good: the arena requests them"
           : "set /sys/kernel/mm/transparent_hugepage/enabled to madvise");
}

static void reportCache() {
  const std::string folder = userCacheFolder();
  auto mib = [](uint64_t bytes) { return double(bytes) / (1 << 20); };
  if (folder.empty())
    return say("cache", "none: neither XDG_CACHE_HOME nor HOME names a folder",
               "every start compiles; set one of them to enable the cache");
  say("cache",
      fmt::format("{}: {:.1f} MiB of programs, {:.1f} MiB of weights", folder,
                  mib(bytesOf(compiledFiles(folder))),
                  mib(bytesOf(WeightCache::files(folder)))),
      "limited by --cache-size and --weight-cache; may be deleted at any time");
}

static void reportOptional() {
  bool mpi = canLoad({"libmpi.so.40", "libmpi.so.12", "libmpi.so"});
  say("MPI", mpi ? "found" : "not found",
      mpi ? "programs compiled with --mesh run under mpirun"
          : "needed only by programs compiled with --mesh, which can use TCP "
            "instead (docs/distributed.md)");
  bool cuda = canLoad({"libcuda.so.1"});
  say("CUDA", cuda ? "driver found" : "no driver",
      cuda ? "programs compiled with --target cuda:… run on it: --device cuda:0"
           : "needed only for GPUs; --device cuda-emu emulates one");
  std::string nvcc = cuda::findNvcc();
  say("nvcc", nvcc.empty() ? "not found" : nvcc.c_str(),
      nvcc.empty() ? "needed only by --target cuda:…: install the CUDA "
                     "Toolkit, or set CUDACXX"
                   : "used to compile kernels for --target cuda:…");
}

static void report() {
  reportProcessor();
  reportMemory();
  reportCache();
  reportOptional();
}

void tessera::addDoctorCommand(CLI::App &app, Invocation &invocation) {
  auto options = std::make_shared<CalibrateOptions>();
  CLI::App *command = app.add_subcommand(
      "doctor", "Report what this machine has, with one line of advice each; "
                "or measure it into a cluster file");
  auto chosen = std::make_shared<bool>(false);
  CLI::Option *calibrates = command->add_flag(
      "--calibrate", *chosen,
      "measure kernels, memory and collectives between MPI ranks on this "
      "machine into a cluster file, for --cluster (docs/planning.md)");
  command
      ->add_option("-o,--output", options->output, "the cluster file to write")
      ->needs(calibrates)
      ->type_name("FILE.yaml");
  command
      ->add_option("--ranks", options->ranks,
                   "measure collectives of 2, 4, ... up to N ranks, which "
                   "mpirun starts (default: 8)")
      ->needs(calibrates)
      ->check(CLI::Range(1, 1024))
      ->type_name("N");
  // Of the ranks that calibration starts.
  command->add_option("--rows", options->rows)->group("");
  command->callback([=, &invocation] {
    if (!*chosen)
      return report();
    if (options->output.empty() && options->rows.empty())
      return invocation.fail("doctor --calibrate requires -o FILE.yaml");
    if (Status status = calibrate(*options); !status.ok())
      invocation.fail(status.message().c_str());
  });
}
