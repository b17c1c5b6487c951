#include "tools/tessera/Calibrate.h"
#include "compiler/Files.h"
#include "compiler/api/CalibrateKernels.h"
#include "compiler/api/DescribeHost.h"
#include "hardware/Cluster.h"
#include "hardware/Quantity.h"
#include "runtime/bench/CollectiveBench.h"
#include "runtime/bench/MemoryBench.h"
#include "runtime/support/Text.h"
#include "llvm/Support/Program.h"
#include <chrono>
#include <filesystem>
#include <fmt/format.h>

using namespace tessera;
using namespace tessera::planner;
using bench::CollectiveTime;

static constexpr int64_t kMostRowBytes = 1 << 20;

static Status writeText(const std::string &path, const std::string &text) {
  if (llvm::Error error = writeFile(path, {llvm::StringRef(text)}))
    return Status::error("{}", llvm::toString(std::move(error)));
  return Status::success();
}

static StatusOr<std::vector<CollectiveTime>>
measureAsRank(const comm::Launch &launch) {
  auto world = comm::World::join(launch, {});
  if (!world.ok())
    return world.status();
  auto rows = bench::benchCollectives(**world);
  if (!rows.ok())
    return rows.status();
  TESSERA_RETURN_IF_ERROR((*world)->leave());
  return rows;
}

// Starts this program as `ranks` ranks.
static StatusOr<std::vector<CollectiveTime>>
measureRanks(const std::string &mpirun, int ranks, const std::string &rows) {
  std::error_code error;
  const std::string self =
      std::filesystem::read_symlink("/proc/self/exe", error).string();
  const std::string count = std::to_string(ranks);
  std::string problem;
  const int code = llvm::sys::ExecuteAndWait(
      mpirun,
      {mpirun, "-n", count, self, "doctor", "--calibrate", "--rows", rows},
      std::nullopt, {}, 0, 0, &problem);
  if (code != 0)
    return Status::error("{} -n {}: {}", mpirun, ranks,
                         problem.empty() ? fmt::format("exit code {}", code)
                                         : problem);
  StatusOr<std::string> text = readTextFile(rows, kMostRowBytes);
  if (!text.ok())
    return text.status();
  return bench::readCollectiveTimes(*text);
}

// Collectives of 2, 4, … ranks; none, with a line, without mpirun.
static StatusOr<std::vector<CollectiveTime>>
measureAllRanks(const CalibrateOptions &options) {
  std::vector<CollectiveTime> all;
  auto mpirun = llvm::sys::findProgramByName("mpirun");
  if (!mpirun) {
    fmt::print("collectives are not measured: mpirun was not found\n");
    return all;
  }
  // Open MPI refuses to share cores, and to be started by root, unless told.
  for (const char *allowed :
       {"OMPI_ALLOW_RUN_AS_ROOT", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM",
        "OMPI_MCA_rmaps_base_oversubscribe"})
    setenv(allowed, "1", 0);
  const std::string rows = options.output + ".rows";
  for (int ranks = 2; ranks <= options.ranks; ranks *= 2) {
    auto measured = measureRanks(*mpirun, ranks, rows);
    std::error_code ignored;
    std::filesystem::remove(rows, ignored);
    if (!measured.ok())
      return measured.status();
    all.insert(all.end(), measured->begin(), measured->end());
  }
  return all;
}

static void printCollectives(const std::vector<CollectiveTime> &rows) {
  if (rows.empty())
    return;
  fmt::print("{:<16}{:>6}{:>6}{:>12}{:>12}{:>9}\n", "collective", "ranks",
             "group", "latency", "bandwidth", "spread");
  for (const CollectiveTime &each : rows)
    fmt::print("{:<16}{:>6}{:>6}{:>12}{:>12}{:>8.0f}%\n",
               kHostCollectives[size_t(each.rate.kind)], each.rate.ranks,
               each.rate.group, formatSeconds(each.rate.latency),
               formatRate(each.rate.bandwidth), 100 * each.spread);
}

static void printKernels(const KernelCalibration &kernels) {
  fmt::print("{} kernels alone on one core; predicted / measured, quartiles: "
             "{:.2f} to {:.2f}; all cores: {:.2f} times as fast\n",
             kernels.kernels, kernels.low, kernels.high, kernels.speedup);
  for (size_t i = 0; i < kKernelKinds.size(); ++i)
    fmt::print("  {:<14}launch {:>9}, {:>6.1f} GFLOP/s, {:>9}\n",
               kKernelKinds[i], formatSeconds(kernels.rates[i].launch),
               kernels.rates[i].flops / 1e9,
               formatRate(kernels.rates[i].bytes));
}

static void printMemory(const char *where, const bench::MemoryTime &memory) {
  fmt::print("memory, {}: read {}, written {}, copied {}, spread {:.0f}%\n",
             where, formatRate(memory.rate.read), formatRate(memory.rate.write),
             formatRate(memory.rate.copy), 100 * memory.spread);
}

static StatusOr<Host> measureHost() {
  Host host = describeHost();
  fmt::print("{}, {} cores, {}\n", host.processor, host.cores,
             formatBytes(host.memory));
  StatusOr<KernelCalibration> kernels = calibrateKernels();
  if (!kernels.ok())
    return kernels.status();
  host.kernels = kernels->rates;
  host.speedup = kernels->speedup;
  printKernels(*kernels);
  const bench::MemoryTime core = bench::benchMemory(1),
                          all = bench::benchMemory(unsigned(host.cores));
  host.core = core.rate;
  host.all = all.rate;
  printMemory("one core", core);
  printMemory("all cores", all);
  return host;
}

Status tessera::calibrate(const CalibrateOptions &options) {
  using Clock = std::chrono::steady_clock;
  const Clock::time_point begin = Clock::now();
  StatusOr<comm::Launch> launch = comm::readLaunch();
  if (!launch.ok())
    return launch.status();
  StatusOr<std::vector<CollectiveTime>> rows = std::vector<CollectiveTime>();
  if (launch->size > 1) {
    rows = measureAsRank(*launch);
    if (!rows.ok() || launch->rank != 0)
      return rows.status();
    if (!options.rows.empty())
      return writeText(options.rows, bench::printCollectiveTimes(*rows));
  }
  // Otherwise each would start the launcher again.
  if (!options.rows.empty())
    return Status::error("mpirun started ranks that do not know its "
                         "environment; use Open MPI or MPICH, or --ranks 1");
  StatusOr<Host> host = measureHost();
  if (!host.ok())
    return host.status();
  if (launch->size == 1)
    rows = measureAllRanks(options);
  if (!rows.ok())
    return rows.status();
  printCollectives(*rows);
  for (const CollectiveTime &each : *rows)
    host->collectives.push_back(each.rate);
  const std::string name = std::filesystem::path(options.output).stem();
  TESSERA_RETURN_IF_ERROR(
      writeText(options.output, printHostFile(name, *host)));
  const std::chrono::duration<double> took = Clock::now() - begin;
  fmt::print("{}: measured in {:.0f} s\n", options.output, took.count());
  return Status::success();
}
