// tessera quantize: a Hugging Face model with weights as integers or floats of
// 8 bits, and what that costs in perplexity.
#include "models/HfConfig.h"
#include "models/ScaledInputs.h"
#include "runtime/data/NewDirectory.h"
#include "runtime/infer/DecodePrograms.h"
#include "runtime/infer/Perplexity.h"
#include "runtime/recipe/Recipe.h"
#include "runtime/support/Text.h"
#include "runtime/train/Generate.h"
#include "runtime/train/ModelDirectory.h"
#include "runtime/train/PackedWeights.h"
#include "runtime/train/RunDirectory.h"
#include "tools/tessera/CacheOptions.h"
#include "tools/tessera/CalibrateScales.h"
#include "tools/tessera/Commands.h"
#include "tools/tessera/DecoderProgram.h"
#include "tools/tessera/QuantOptions.h"
#include <CLI/CLI.hpp>
#include <algorithm>
#include <fmt/format.h>
#include <memory>

using namespace tessera;

namespace {

constexpr int64_t kMostTextBytes = int64_t(64) << 20;

struct QuantizeSettings {
  std::string place;              ///< a model directory
  std::string output;             ///< one that is to be; empty: none
  std::string text;               ///< a file to foretell; empty: none
  std::string calibrate;          ///< one to choose scales by; empty: none
  int64_t window = 512;           ///< its tokens that are read together
  std::vector<std::string> quant; ///< of the recipe
  DecoderSettings decoder{.batch = 8, .pages = {}, .command = "quantize"};
  unsigned threads = 0;
  uint64_t cacheGib = kCacheGib;

  bool asks(std::string_view assignment) const {
    return std::ranges::find(quant, assignment) != quant.end();
  }
  /// The weights as they are, and nothing else.
  bool onlyMeasures() const {
    return asks("inference.quant=none") && !asks("inference.kv=int8");
  }
};

/// What perplexity is measured of.
struct Text {
  std::vector<int32_t> tokens, starts;
};

/// What one form of the weights comes to.
struct Outcome {
  uint64_t weightBytes = 0;
  std::optional<Perplexity> perplexity;
};

} // namespace

// Before the model is looked at, whose tokenizer would make tokens of anything.
static StatusOr<std::string> readContent(const std::string &file) {
  auto content = readTextFile(file, kMostTextBytes);
  if (!content.ok())
    return content;
  if (content->empty())
    return Status::error("{}: is empty; give a file with a text", file);
  if (!isUtf8(*content) || content->find('\0') != std::string::npos)
    return Status::error("{}: is no text in UTF-8; give one", file);
  return content;
}

static StatusOr<Text> tokenize(const QuantizeSettings &settings,
                               const std::string &content) {
  auto tokenizer =
      tokenizer::Tokenizer::load(settings.place + "/" + kTokenizerFile);
  if (!tokenizer.ok())
    return tokenizer.status();
  std::vector<uint32_t> ids;
  tokenizer::Encoder encoder(*tokenizer);
  encoder.encode(content, tokenizer::SpecialText::Plain, ids);
  std::vector<uint32_t> starts = encoder.encodeFramed("");
  return Text{{ids.begin(), ids.end()}, {starts.begin(), starts.end()}};
}

static StatusOr<QuantizedLayout>
readRounding(const QuantizeSettings &settings) {
  auto read = recipe::loadRecipe("", settings.quant);
  if (!read.ok())
    return read.status();
  const recipe::Recipe::Inference &inference = read->inference;
  return QuantizedLayout{.bits = inference.quant == recipe::Quant::Int4 ? 4 : 8,
                         .group = inference.group,
                         .zeros = inference.zeros == recipe::ZeroPoints::Groups,
                         .floats = inference.quant == recipe::Quant::Fp8};
}

// Whether the model's matrices can be written, by their shapes alone.
static Status checkWritable(const models::ModelSpec &spec,
                            QuantizedLayout layout) {
  for (const models::Parameter &each : models::parameters(spec)) {
    const std::size_t rank = each.shape.size();
    if (each.layer < 0 || rank < 2 || each.wide || each.fixed)
      continue;
    layout.rows = each.shape[rank - 2];
    layout.columns = each.shape[rank - 1];
    const bool transposed = spec.family == models::Family::Gpt2,
               isStack = rank == 3;
    if (transposed)
      std::swap(layout.rows, layout.columns);
    if (layout.rows < QuantizedLayout::kStrip ||
        layout.columns < QuantizedLayout::kBlock ||
        (isStack && layout.rows % QuantizedLayout::kStrip != 0))
      continue; // stays as it is
    TESSERA_RETURN_IF_ERROR(checkPackable(each.name, layout, transposed));
  }
  return Status::success();
}

// The texts' windows, which are read behind what begins a text.
static Status checkWindow(const QuantizeSettings &settings,
                          const models::ModelSpec &spec, const Text &text) {
  if (settings.window + int64_t(text.starts.size()) <= spec.maxPositions)
    return Status::success();
  return Status::error("windows of {} tokens behind {} do not fit the model's "
                       "{} positions; lower --window",
                       settings.window, text.starts.size(), spec.maxPositions);
}

// The model in a program of its own, its weights times `factors`; `finish` gets
// it with these.
static StatusOr<Outcome>
runOnce(const QuantizeSettings &settings, const models::ModelSpec &spec,
        const std::vector<std::string> &set, const std::optional<Text> &text,
        const WeightFactors &factors,
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

// Scales by what the model's layers read of the text for it.
static StatusOr<WeightFactors> calibrate(const QuantizeSettings &settings,
                                         const models::ModelSpec &spec,
                                         const QuantizedLayout &rounding,
                                         const Text &text) {
  auto calibration = calibrateScales(
      settings.place, spec, settings.decoder,
      {text.tokens, text.starts, settings.calibrate, settings.window}, rounding,
      settings.threads);
  if (!calibration.ok())
    return calibration.status();
  fmt::print("calibrated: {} tokens, errors of outputs {:.1f} % of those "
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

static double change(const Outcome &from, const Outcome &to) {
  return 100 * (to.perplexity->value / from.perplexity->value - 1);
}

static Status run(const QuantizeSettings &settings,
                  const models::ModelSpec &spec,
                  const QuantizedLayout &rounding,
                  const std::optional<Text> &text,
                  const std::optional<Text> &sample) {
  WeightFactors factors;
  if (sample) {
    auto chosen = calibrate(settings, spec, rounding, *sample);
    if (!chosen.ok())
      return chosen.status();
    factors = chosen.take();
  }
  std::vector<std::string> set;
  int64_t ahead = text ? int64_t(text->starts.size()) : 0;
  set.push_back(fmt::format("inference.context={}", settings.window + ahead));
  Outcome before, plain, after;
  auto measure = [&](const char *what, Outcome &outcome) -> Status {
    auto run = runOnce(settings, spec, set, text, {},
                       [](SessionModel &) { return Status::success(); });
    if (!run.ok())
      return run.status();
    outcome = run.take();
    print(what, outcome);
    return Status::success();
  };
  if (text)
    TESSERA_RETURN_IF_ERROR(measure("as it is", before));
  if (settings.onlyMeasures()) {
    fmt::print("over {} tokens, in windows of {}\n", before.perplexity->counted,
               settings.window);
    return Status::success();
  }
  for (const std::string &each : settings.quant)
    if (each != "inference.quant=none") // which stored integers are not
      set.push_back(each);
  if (text && sample)
    TESSERA_RETURN_IF_ERROR(measure("quantized without scales", plain));
  auto run =
      runOnce(settings, spec, set, text, factors, [&](SessionModel &model) {
        return settings.output.empty()
                   ? Status::success()
                   : writePacked(settings.place, settings.output, model,
                                 factors);
      });
  if (!run.ok())
    return run.status();
  after = run.take();
  print(settings.asks("inference.quant=none") ? "keys and values as int8"
                                              : "quantized",
        after);
  if (text)
    fmt::print("perplexity {:+.2f} %{} over {} tokens, in windows of {}\n",
               change(before, after),
               sample ? fmt::format(", without scales {:+.2f} %,",
                                    change(before, plain))
                      : "",
               after.perplexity->counted, settings.window);
  return Status::success();
}

// What is asked for, without a look at the model.
static Status checkAsked(const QuantizeSettings &settings) {
  const bool isNone = settings.asks("inference.quant=none"),
             isCache = settings.asks("inference.kv=int8");
  if (isNone && !settings.output.empty())
    return Status::error("--quant none changes no weights; leave -o out");
  if (isNone && !settings.calibrate.empty())
    return Status::error("--quant none rounds no weights, for which scales "
                         "would be; leave --calibrate out");
  if (isNone && std::ranges::any_of(settings.quant, [](const auto &each) {
        return each.starts_with("inference.group=") ||
               each.starts_with("inference.zeros=");
      }))
    return Status::error("--quant none rounds no weights; leave --quant-group "
                         "and --quant-zeros out");
  if (isNone && settings.text.empty())
    return Status::error("--quant none only measures the weights as they are, "
                         "with --kv int8 also the cache as integers; give "
                         "--text FILE, or --quant int8, int4 or fp8");
  if (settings.asks("inference.quant=fp8") && !settings.calibrate.empty())
    return Status::error(
        "--calibrate chooses scales for integers, all of whose "
        "steps are alike; those of fp8 grow with the weights, "
        "so leave it out, or choose int8 or int4");
  if (settings.asks("inference.quant=fp8") &&
      settings.asks("inference.zeros=groups"))
    return Status::error("--quant fp8 are floats, which have no zero points; "
                         "leave --quant-zeros out, or choose int8 or int4");
  if (isCache && settings.text.empty())
    return Status::error("--kv concerns only what is measured, and is not "
                         "written; give --text FILE, or leave --kv out");
  if (settings.output.empty() && settings.text.empty())
    return Status::error("nothing to do: give -o DIR2, --text FILE or both");
  return settings.output.empty() ? Status::success()
                                 : checkNewDirectory(settings.output);
}

// What is refused is so before anything takes long.
static Status quantize(QuantizeSettings &settings) {
  TESSERA_RETURN_IF_ERROR(checkAsked(settings));
  std::string contents[2];
  for (auto [file, to] : {std::pair(&settings.text, &contents[0]),
                          {&settings.calibrate, &contents[1]}}) {
    if (file->empty())
      continue;
    auto read = readContent(*file);
    if (!read.ok())
      return read.status();
    *to = read.take();
  }
  auto directory = findModelDirectory(settings.place);
  if (!directory)
    return Status::error("'{}' is no model directory: it has no config.json",
                         settings.place);
  settings.place = *directory;
  auto config = models::loadHfConfig(settings.place);
  if (!config.ok())
    return config.status();
  if (config->stored && !settings.asks("inference.quant=none"))
    return Status::error("the weights of '{}' are quantized already; measure "
                         "them by --quant none --text FILE, or quantize the "
                         "model that they were made of",
                         settings.place);
  if (!settings.calibrate.empty())
    if (auto inputs = models::scaledInputs(config->spec); !inputs.ok())
      return inputs.status();
  auto rounding = readRounding(settings);
  if (!rounding.ok())
    return rounding.status();
  if (!settings.output.empty())
    TESSERA_RETURN_IF_ERROR(checkWritable(config->spec, *rounding));
  std::optional<Text> text, sample;
  for (auto [content, to] :
       {std::pair(&contents[0], &text), {&contents[1], &sample}}) {
    if (content->empty())
      continue;
    auto read = tokenize(settings, *content);
    if (!read.ok())
      return read.status();
    *to = read.take();
  }
  if (text && text->tokens.size() < 2)
    return Status::error("{}: is one token, which has none to foretell; give a "
                         "longer text",
                         settings.text);
  if (sample)
    TESSERA_RETURN_IF_ERROR(checkLength(
        {sample->tokens, sample->starts, settings.calibrate, settings.window}));
  for (const std::optional<Text> *each : {&text, &sample})
    if (*each)
      TESSERA_RETURN_IF_ERROR(checkWindow(settings, config->spec, **each));
  return run(settings, config->spec, *rounding, text, sample);
}

static std::string isNamed(const std::string &place) {
  return place.empty() ? "'' is no name" : "";
}

void tessera::addQuantizeCommand(CLI::App &app, Invocation &invocation) {
  auto settings = std::make_shared<QuantizeSettings>();
  CLI::App *command = app.add_subcommand(
      "quantize", "Round a Hugging Face model's weights to integers or fp8: "
                  "write them, and measure what it costs");
  command
      ->add_option("DIR", settings->place,
                   "a Hugging Face model: its directory, or its name where the "
                   "hub's cache has it")
      ->required();
  command
      ->add_option(
          "-o,--output", settings->output,
          "a new directory for config.json and safetensors in the "
          "format of compressed-tensors, which generate and serve take")
      ->type_name("DIR2")
      ->check(isNamed);
  addQuantOptions(*command, settings->quant);
  addKvOption(*command, settings->quant);
  command->get_option("--kv")->description(
      "measure --text with the cache's keys and values as int8, with a scale "
      "for each token and head; changes nothing of what -o writes");
  command->get_option("--quant")
      ->description("round the matrices of linear layers to int8, int4 (the "
                    "head to int8 then) or fp8 (e4m3) with scales; none: "
                    "measure --text with the weights as they are")
      ->required();
  command
      ->add_option("--text", settings->text,
                   "measure the perplexity of this file, before and after")
      ->type_name("FILE")
      ->check(isNamed);
  command
      ->add_option("--calibrate", settings->calibrate,
                   "choose scales of channels by what the model's layers read "
                   "of this file (AWQ), some thousand tokens")
      ->type_name("FILE")
      ->check(isNamed);
  command
      ->add_option("--window", settings->window,
                   "tokens of these files that are read together")
      ->check(CLI::Range(2, 1 << 16))
      ->capture_default_str();
  addCacheOptions(*command, settings->decoder.cache, settings->cacheGib);
  command->add_option("--threads", settings->threads, "0: all processors")
      ->envname("TESSERA_THREADS")
      ->capture_default_str();
  command->callback([=, &invocation] {
    settings->decoder.cacheBytes = settings->cacheGib << 30;
    if (Status status = quantize(*settings); !status.ok())
      invocation.fail(status.message().c_str());
  });
}
