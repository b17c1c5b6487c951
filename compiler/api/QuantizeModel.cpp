#include "compiler/api/QuantizeModel.h"
#include "compiler/api/CalibrateScales.h"
#include "runtime/generate/Generate.h"
#include "runtime/infer/DecodePrograms.h"
#include "runtime/infer/Perplexity.h"
#include "runtime/weights/PackedWeights.h"

#include <fmt/format.h>

using namespace tessera;

namespace {

/// The measurements for one form of the weights.
struct Outcome {
  uint64_t weightBytes = 0;
  std::optional<Perplexity> perplexity;
};

} // namespace

// Compiles and loads the model with its weights multiplied by `factors`,
// measures it, and passes it to `finish`.
static StatusOr<Outcome>
runOnce(const QuantizeSettings &settings, const models::ModelSpec &spec,
        const std::vector<std::string> &set,
        const std::optional<TokenizedText> &text, const WeightFactors &factors,
        llvm::function_ref<Status(SessionModel &)> finish) {
  TemporaryFile program;
  llvm::Error error = program.create();
  if (!error)
    error = compileModelDecoder(settings.place, spec, settings.decoder, "", set,
                                program.name());
  if (error)
    return Status::error("{}", llvm::toString(std::move(error)));
  GenerateOptions options;
  options.program = program.name();
  options.threads = settings.threads;
  options.factors = &factors;
  auto model = openModelDirectory(settings.place, options);
  if (!model.ok())
    return model.status();
  Outcome outcome;
  for (const StateTensor &tensor : (*model)->state())
    if (tensor.role == StateRole::parameter)
      outcome.weightBytes += tensor.size;
  if (text) {
    auto programs = DecodePrograms::create((*model)->get());
    if (!programs.ok())
      return programs.status();
    auto measured = measurePerplexity(**programs, text->tokens, text->starts,
                                      settings.window);
    if (!measured.ok())
      return measured.status();
    outcome.perplexity = *measured;
  }
  TESSERA_RETURN_IF_ERROR(finish(**model));
  return outcome;
}

// Scales by the activations on the calibration text.
static StatusOr<WeightFactors> calibrate(const QuantizeSettings &settings,
                                         const models::ModelSpec &spec,
                                         const QuantizedLayout &rounding,
                                         const TokenizedText &text) {
  auto calibration = calibrateScales(
      settings.place, spec, settings.decoder,
      {text.tokens, text.starts, settings.calibrate, settings.window}, rounding,
      settings.threads);
  if (!calibration.ok())
    return calibration.status();
  fmt::print("calibrated: {} tokens; output errors are {:.1f} % of those "
             "without scales (mean of {} inputs)\n",
             calibration->tokens, 100 * calibration->error,
             calibration->inputs);
  std::fflush(stdout);
  return std::move(calibration->factors);
}

static void print(const char *what, const Outcome &outcome) {
  fmt::print("{}: {:.1f} MB of weights", what, outcome.weightBytes / 1e6);
  if (outcome.perplexity)
    fmt::print(", perplexity {:.4f}", outcome.perplexity->value);
  fmt::print("\n");
  std::fflush(stdout);
}

/// "+1.23 %"; zero has no sign.
static std::string change(const Outcome &from, const Outcome &to) {
  std::string text = fmt::format(
      "{:+.2f}", 100 * (to.perplexity->value / from.perplexity->value - 1));
  if (text == "-0.00" || text == "+0.00")
    text.erase(0, 1);
  return text + " %";
}

namespace {

/// The model before and after, one program at a time.
class Comparison {
public:
  Comparison(const QuantizeSettings &settings, const models::ModelSpec &spec,
             const QuantizeSamples &samples)
      : settings(settings), spec(spec), samples(samples) {
    const auto ahead = samples.text ? int64_t(samples.text->starts.size()) : 0;
    set.push_back(fmt::format("inference.context={}", settings.window + ahead));
  }

  Status run(const WeightFactors &factors) {
    if (samples.text)
      TESSERA_RETURN_IF_ERROR(measure("original", before));
    if (settings.onlyMeasures()) {
      fmt::print("over {} tokens, in windows of {}\n",
                 before.perplexity->counted, settings.window);
      return Status::success();
    }
    for (const std::string &each : settings.quant)
      if (each != "inference.quant=none") // stored integers remain quantized
        set.push_back(each);
    if (samples.text && samples.sample)
      TESSERA_RETURN_IF_ERROR(measure("quantized without scales", plain));
    return quantize(factors);
  }

private:
  Status measure(const char *what, Outcome &outcome) const {
    auto run = runOnce(settings, spec, set, samples.text, {},
                       [](SessionModel &) { return Status::success(); });
    if (!run.ok())
      return run.status();
    outcome = run.take();
    print(what, outcome);
    return Status::success();
  }

  Status quantize(const WeightFactors &factors) const {
    auto run = runOnce(
        settings, spec, set, samples.text, factors, [&](SessionModel &model) {
          return settings.output.empty()
                     ? Status::success()
                     : writePacked(settings.place, settings.output, model,
                                   factors);
        });
    if (!run.ok())
      return run.status();
    print(settings.asks("inference.quant=none") ? "keys and values as int8"
                                                : "quantized",
          *run);
    if (samples.text)
      fmt::print("perplexity {}{} over {} tokens, in windows of {}\n",
                 change(before, *run),
                 samples.sample ? fmt::format(", without scales {},",
                                              change(before, plain))
                                : "",
                 run->perplexity->counted, settings.window);
    return Status::success();
  }

  const QuantizeSettings &settings;
  const models::ModelSpec &spec;
  const QuantizeSamples &samples;
  std::vector<std::string> set;
  Outcome before, plain;
};

} // namespace

Status tessera::quantizeModel(const QuantizeSettings &settings,
                              const models::ModelSpec &spec,
                              const QuantizedLayout &rounding,
                              const QuantizeSamples &samples) {
  WeightFactors factors;
  if (samples.sample) {
    auto chosen = calibrate(settings, spec, rounding, *samples.sample);
    if (!chosen.ok())
      return chosen.status();
    factors = chosen.take();
  }
  return Comparison(settings, spec, samples).run(factors);
}
