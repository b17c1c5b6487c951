// The command line of the kernel benchmark, and what it prints.
#include "runtime/bench/KernelBench.h"
#include "runtime/support/CommandLine.h"

#include <cstdio>
#include <fstream>
#include <sstream>

#include <CLI/CLI.hpp>
#include <fmt/format.h>
#include <nlohmann/json.hpp>

namespace tessera::bench {
namespace {

/// "-" where it is unknown.
std::string number(double value, const char *format) {
  return value > 0 ? fmt::format(fmt::runtime(format), value) : "-";
}

double ratio(double value, double whole) {
  return value > 0 && whole > 0 ? value / whole : 0;
}

double sumOf(const KernelBenchResult &result) {
  double sum = 0;
  for (const KernelTime &kernel : result.kernels)
    sum += kernel.all();
  return sum;
}

std::string heading(const KernelBenchResult &result) {
  std::string text = fmt::format("{} on {}, code for {}\n", result.program,
                                 result.device, result.target);
  if (result.emulated)
    return text + "the kernels ran once, on the host: these times say nothing "
                  "of a GPU\n";
  text += fmt::format("memory: {} GB/s copied, measured here",
                      number(result.copyBytesPerSecond / 1e9, "{:.1f}"));
  for (const auto &[name, peak] : {std::pair("bf16", result.peaks.bf16),
                                   std::pair("tf32", result.peaks.tf32),
                                   std::pair("fp32", result.peaks.fp32)})
    if (peak > 0)
      text += fmt::format("; {} {:.1f} TFLOP/s", name, peak / 1e12);
  text += result.peaksFrom.empty() ? "; no peak is known of this device\n"
                                   : fmt::format(" ({})\n", result.peaksFrom);
  return text + fmt::format("kernels one by one {:.3f} ms, the program whole "
                            "{:.3f} ms\n",
                            sumOf(result) * 1e3, result.programSeconds * 1e3);
}

} // namespace

std::string kernelBenchTable(const KernelBenchResult &result) {
  std::string text = heading(result);
  text += fmt::format("{:>6} {:>5} {:>10} {:>8} {:>8} {:>10} {:>6}  {}\n",
                      "share", "runs", "us", "GB/s", "TFLOP/s", "roof us",
                      "of it", "kernel: what was fused (first origin)");
  const double sum = sumOf(result);
  for (const KernelTime &kernel : result.kernels) {
    const double share = 100 * ratio(kernel.all(), sum);
    text += fmt::format(
        "{:>5.1f}% {:>5} {:>10.2f} {:>8} {:>8} {:>10} {:>6}  {}: {} ({})\n",
        share, kernel.launches, kernel.seconds * 1e6,
        number(ratio(kernel.bytes, kernel.seconds) / 1e9, "{:.1f}"),
        number(ratio(kernel.flops, kernel.seconds) / 1e12, "{:.2f}"),
        number(kernel.roofSeconds * 1e6, "{:.2f}"),
        number(100 * ratio(kernel.roofSeconds, kernel.seconds), "{:.1f}%"),
        kernel.name, kernel.fused, kernel.origin);
  }
  return text;
}

std::string kernelBenchJson(const KernelBenchResult &result) {
  using nlohmann::json;
  json kernels = json::array();
  for (const KernelTime &kernel : result.kernels)
    kernels.push_back({{"name", kernel.name},
                       {"fused", kernel.fused},
                       {"origin", kernel.origin},
                       {"launches", kernel.launches},
                       {"flops", kernel.flops},
                       {"bytes", kernel.bytes},
                       {"seconds", kernel.seconds},
                       {"roof_seconds", kernel.roofSeconds},
                       {"bound", kernel.boundByMemory ? "memory" : "compute"},
                       {"of_roof", ratio(kernel.roofSeconds, kernel.seconds)}});
  const json all = {{"device", result.device},
                    {"target", result.target},
                    {"program", result.program},
                    {"emulated", result.emulated},
                    {"program_seconds", result.programSeconds},
                    {"copy_bytes_per_second", result.copyBytesPerSecond},
                    {"peaks",
                     {{"bf16", result.peaks.bf16},
                      {"tf32", result.peaks.tf32},
                      {"fp32", result.peaks.fp32},
                      {"from", result.peaksFrom}}},
                    {"kernels", std::move(kernels)}};
  return all.dump(1, ' ', false, json::error_handler_t::replace) + "\n";
}

namespace {

struct CommandLine {
  KernelBenchOptions bench;
  std::string artifact, json;
  std::uint64_t flushMebibytes = 0;
};

void addOptions(CLI::App &app, CommandLine &line, bool hasArtifact) {
  if (!hasArtifact)
    app.add_option("ARTIFACT", line.artifact, "what compile wrote")
        ->type_name("")
        ->required();
  app.add_option("--device", line.bench.device,
                 "cuda:0 and so on, a GPU; cpu; cuda-emu, where kernels run "
                 "once and times are meaningless (default: cuda:0, or cpu if "
                 "the artifact has no GPU kernels)")
      ->type_name("NAME");
  app.add_option("--program", line.bench.program,
                 "whose kernels (default: train_step, or decode_1 where there "
                 "is none)")
      ->type_name("NAME");
  app.add_option("--filter", line.bench.filter,
                 "only kernels with this in their names")
      ->type_name("TEXT");
  app.add_option("--repeats", line.bench.repeats,
                 "counted runs of each kernel, of which the median is shown")
      ->check(CLI::Range(1, 10000))
      ->capture_default_str();
  app.add_option("--threads", line.bench.threads,
                 "of the device cpu (default: all processors)")
      ->check(CLI::Range(1, 1024));
  app.add_option("--flush", line.flushMebibytes,
                 "MiB written before each run to empty the caches (default: "
                 "256 on a GPU, 64 on a CPU)")
      ->check(CLI::Range(1, 65536))
      ->type_name("MIB");
  app.add_option("--json", line.json, "write all measurements as JSON")
      ->type_name("FILE");
}

Status runBench(const CommandLine &line) {
  StatusOr<ArtifactReader> reader = ArtifactReader::open(line.artifact);
  if (!reader.ok())
    return reader.status();
  StatusOr<KernelBenchResult> result = benchKernels(*reader, line.bench);
  if (!result.ok())
    return result.status();
  fmt::print("{}", kernelBenchTable(*result));
  if (line.json.empty())
    return Status::success();
  std::ofstream file(line.json);
  file << kernelBenchJson(*result) << std::flush;
  if (!file)
    return Status::error("{}: cannot be written", line.json);
  return Status::success();
}

} // namespace

int benchKernelsMain(int argc, const char *const *argv,
                     const std::string &artifact, const std::string &command) {
  // As whatever it is part of says what goes wrong.
  const std::string prefix =
      command.empty() ? "error" : command.substr(0, command.find(' '));
  CommandLine line;
  line.artifact = artifact;
  CLI::App app("Times every kernel of a program by itself, against what the "
               "device's memory and arithmetic allow.");
  app.failure_message([&](const CLI::App *app, const CLI::Error &error) {
    return fmt::format("{}: {}; see {}--help\n", prefix,
                       commandLineError(*app, error),
                       command.empty() ? "" : command + " ");
  });
  addOptions(app, line, !artifact.empty());
  try {
    parseCommandLine(app, argc, argv);
  } catch (const CLI::ParseError &error) {
    std::ostringstream out, errors;
    const int code = app.exit(error, out, errors);
    std::fputs((out.str() + errors.str()).c_str(), code ? stderr : stdout);
    return code == 0 ? 0 : 2;
  }
  line.bench.flushBytes = line.flushMebibytes << 20;
  const Status status = runBench(line);
  if (!status.ok())
    fmt::print(stderr, "{}: {}\n", prefix, status.message());
  return status.ok() ? 0 : 1;
}

} // namespace tessera::bench
