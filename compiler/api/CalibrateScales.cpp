#include "compiler/api/CalibrateScales.h"
#include "models/ScaledInputs.h"
#include "runtime/generate/Generate.h"
#include "runtime/weights/ChooseScales.h"
#include <algorithm>
#include <cmath>
#include <fmt/format.h>
#include <unistd.h>

using namespace tessera;

namespace {

constexpr int64_t kLeastTokens = 1024, kMostWindows = 128;
constexpr const char *kProgram = "calibrate";

/// Sums over tokens, by output of @calibrate.
using Sums = std::map<std::string, std::vector<double>>;

/// Progress in one line, rewritten in place on a terminal.
void progress(const char *what, int64_t done, int64_t all) {
  static const bool isTerminal = ::isatty(STDERR_FILENO);
  if (isTerminal)
    fmt::print(stderr, "\r{} {} of {}{}", what, done, all,
               done == all ? "\n" : "");
  else if (done == all)
    fmt::print(stderr, "{} {}\n", what, all);
}

} // namespace

/// Adds the program's outputs for one window.
static Status addSums(hal::Session &session, std::span<const int32_t> tokens,
                      Sums &sums) {
  TESSERA_RETURN_IF_ERROR(session.writeInput(kProgram, "tokens", tokens));
  TESSERA_RETURN_IF_ERROR(session.run(kProgram));
  std::vector<float> values;
  for (const hal::TensorInfo &output : session.outputs(kProgram)) {
    values.resize(output.elements());
    TESSERA_RETURN_IF_ERROR(session.readOutput(
        kProgram, output.name, std::as_writable_bytes(std::span(values))));
    std::vector<double> &to = sums[std::string(output.name)];
    to.resize(values.size());
    for (std::size_t i = 0; i < values.size(); ++i)
      to[i] += double(values[i]);
  }
  return Status::success();
}

/// Reads `windows` windows, the first at the beginning of the text.
static StatusOr<Sums> measure(const std::string &directory,
                              const models::ModelSpec &spec,
                              const DecoderSettings &settings,
                              const CalibrationText &text, int64_t windows,
                              unsigned threads) {
  DecoderSettings own = settings;
  own.calibrates = true;
  const int64_t length = text.window + int64_t(text.starts.size());
  TemporaryFile program;
  llvm::Error error = program.create();
  if (!error)
    error = compileModelDecoder(directory, spec, own, "",
                                {fmt::format("inference.context={}", length)},
                                program.name());
  if (error)
    return Status::error("{}", llvm::toString(std::move(error)));
  GenerateOptions options;
  options.program = program.name();
  options.threads = threads;
  auto model = openModelDirectory(directory, options);
  if (!model.ok())
    return model.status();
  hal::Session &session = (*model)->get();
  if (session.inputs(kProgram).empty() ||
      session.inputs(kProgram).front().elements() != uint64_t(length))
    return Status::error("windows of {} tokens after {} start tokens do not "
                         "fit the model's {} positions; lower --window",
                         text.window, text.starts.size(), spec.maxPositions);
  const int64_t whole = int64_t(text.tokens.size()) / text.window;
  Sums sums;
  std::vector<int32_t> tokens(text.starts.begin(), text.starts.end());
  tokens.resize(length);
  for (int64_t i = 0; i < windows; ++i) {
    std::ranges::copy(
        text.tokens.subspan(i * whole / windows * text.window, text.window),
        tokens.begin() + int64_t(text.starts.size()));
    TESSERA_RETURN_IF_ERROR(addSums(session, tokens, sums));
    progress("calibrating: windows", i + 1, windows);
  }
  return sums;
}

/// The means of one input.
static StatusOr<InputStatistics> statisticsOf(const std::string &module,
                                              const Sums &sums, double tokens) {
  InputStatistics statistics;
  for (auto [end, to] : {std::pair(".magnitude", &statistics.magnitude),
                         {".square", &statistics.square}}) {
    auto found = sums.find(module + end);
    if (found == sums.end())
      return Status::error("the program did not measure the input of '{}'",
                           module);
    for (double sum : found->second) {
      to->push_back(float(sum / tokens));
      if (!std::isfinite(to->back()))
        return Status::error("the input of '{}' is not finite on this text",
                             module);
    }
  }
  return statistics;
}

static StatusOr<SafetensorsModel::Location>
locate(const SafetensorsModel &file, const models::ModelSpec &spec,
       const std::string &parameter) {
  for (const std::string &name : models::checkpointNames(spec, parameter))
    for (std::string_view without : {"", "model."}) {
      std::string_view own = name;
      if (!own.starts_with(without))
        continue;
      own.remove_prefix(without.size());
      if (auto found = file.tensors().find(own); found != file.tensors().end())
        return found->second;
    }
  return Status::error("the checkpoint lacks '{}'", parameter);
}

/// The factors of the readers and of the producers of the input.
static void fold(const models::InputOfLinears &input, float offset,
                 const ChosenScales &chosen, WeightFactors &factors) {
  for (const std::string &reader : input.readers)
    factors[reader].columns = chosen.scales;
  for (const std::string &before : input.before) {
    factors[before].rows = chosen.inverse;
    if (&before == &input.before.front())
      factors[before].offset = offset;
  }
}

Status tessera::checkLength(const CalibrationText &text) {
  const auto tokens = int64_t(text.tokens.size()),
             least = std::max(kLeastTokens, text.window);
  if (tokens >= least)
    return Status::success();
  return Status::error(
      "--calibrate {}: has {} tokens; at least {} are required", text.file,
      tokens, least);
}

StatusOr<Calibration> tessera::calibrateScales(const std::string &directory,
                                               const models::ModelSpec &spec,
                                               const DecoderSettings &settings,
                                               const CalibrationText &text,
                                               const QuantizedLayout &rounding,
                                               unsigned threads) {
  auto inputs = models::scaledInputs(spec);
  if (!inputs.ok())
    return inputs.status();
  TESSERA_RETURN_IF_ERROR(checkLength(text));
  auto file = SafetensorsModel::open(directory);
  if (!file.ok())
    return file.status();
  const int64_t windows =
      std::min(kMostWindows, int64_t(text.tokens.size()) / text.window);
  auto sums = measure(directory, spec, settings, text, windows, threads);
  if (!sums.ok())
    return sums.status();
  Calibration result;
  result.tokens = windows * text.window;
  result.inputs = int64_t(inputs->size());
  const double read =
      double(windows) * double(text.window + int64_t(text.starts.size()));
  for (const models::InputOfLinears &each : *inputs) {
    auto statistics = statisticsOf(each.measured, *sums, read);
    if (!statistics.ok())
      return statistics.status();
    ScaledInput input{{}, each.sources};
    for (const std::string &reader : each.readers) {
      auto location = locate(*file, spec, reader);
      if (!location.ok())
        return location.status();
      input.readers.push_back(*location);
    }
    if (each.isNorm) {
      auto location = locate(*file, spec, each.before.front());
      if (!location.ok())
        return location.status();
      input.norm = *location;
      input.offset = spec.normPlusOne ? 1 : 0;
    }
    auto chosen = chooseScales(input, *statistics, rounding, each.elements);
    if (!chosen.ok())
      return chosen.status();
    result.error += (chosen->plain > 0 ? chosen->error / chosen->plain : 1) /
                    double(result.inputs);
    if (chosen->exponent > 0)
      fold(each, input.offset, *chosen, result.factors);
    progress("choosing scales: inputs", &each - inputs->data() + 1,
             result.inputs);
  }
  return result;
}
