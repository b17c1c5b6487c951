// tessera-run: the runtime alone. `tessera compile` appends an artifact to a
// copy of it, and the copy is a training executable. Without an appended
// artifact, the first argument names one; it trains, runs one program, or times
// the kernels.
#include "runtime/artifact/AppendedArtifact.h"
#include "runtime/bench/KernelBench.h"
#include "runtime/train/TrainCommand.h"
#include "tools/tessera-run/RunProgram.h"

#include <cstdio>
#include <filesystem>
#include <fstream>
#include <string>
#include <string_view>

using namespace tessera;

static constexpr const char *kSelf = "/proc/self/exe";

// Whether this program's own file ends in the footer of an artifact.
static bool hasArtifact() {
  std::ifstream file(kSelf, std::ios::binary);
  artifact::Footer footer{};
  file.seekg(-static_cast<std::streamoff>(sizeof(footer)), std::ios::end);
  return file.read(reinterpret_cast<char *>(&footer), sizeof(footer)) &&
         std::memcmp(footer.magic, artifact::kFooterMagic,
                     sizeof(footer.magic)) == 0;
}

// The name in error messages; /proc/self/exe works even if that path is gone.
static std::string ownPath() {
  std::error_code error;
  std::filesystem::path path = std::filesystem::read_symlink(kSelf, error);
  return !error && std::filesystem::exists(path, error) ? path.string() : kSelf;
}

static bool asksForBench(int argc, const char *const *argv) {
  return argc > 1 && std::string_view(argv[1]) == "bench-kernels";
}

int main(int argc, char **argv) {
  if (hasArtifact())
    return asksForBench(argc, argv)
               ? bench::benchKernelsMain(argc - 1, argv + 1, ownPath())
               : trainMain(argc, argv, ownPath());
  if (argc < 2 || std::string_view(argv[1]) == "--help") {
    std::puts("usage: tessera-run ARTIFACT.tsr [options of a training "
              "executable; ARTIFACT.tsr --help lists them]\n"
              "       tessera-run ARTIFACT.tsr --program NAME [options; "
              "ARTIFACT.tsr --program NAME --help lists them]\n"
              "       tessera-run ARTIFACT.tsr bench-kernels [options; "
              "ARTIFACT.tsr bench-kernels --help lists them]");
    return argc < 2 ? 2 : 0;
  }
  std::string path = argv[1];
  argv[1] = argv[0];
  if (asksForBench(argc - 1, argv + 1))
    return bench::benchKernelsMain(argc - 2, argv + 2, path);
  if (asksForProgram(argc - 1, argv + 1))
    return runProgramMain(argc - 1, argv + 1, path);
  return trainMain(argc - 1, argv + 1, path);
}
