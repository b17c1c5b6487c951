#include "compiler/api/QuantizeInput.h"
#include "compiler/api/CalibrateScales.h"
#include "models/HfConfig.h"
#include "models/ScaledInputs.h"
#include "models/gguf/GgufModel.h"
#include "runtime/data/NewDirectory.h"
#include "runtime/generate/ModelDirectory.h"
#include "runtime/recipe/Recipe.h"
#include "runtime/support/Text.h"
#include "runtime/train/RunDirectory.h"
#include "runtime/weights/PackedWeights.h"
#include <algorithm>
#include <array>

using namespace tessera;

static constexpr int64_t kMostTextBytes = int64_t(64) << 20;

// Checked before loading the tokenizer, which would accept any bytes.
static StatusOr<std::string> readContent(const std::string &file) {
  auto content = readTextFile(file, kMostTextBytes);
  if (!content.ok())
    return content;
  if (content->empty())
    return Status::error("{}: is empty; give a file with text", file);
  if (!isUtf8(*content) || content->find('\0') != std::string::npos)
    return Status::error("{}: is not UTF-8 text", file);
  return content;
}

static StatusOr<TokenizedText> tokenize(const QuantizeSettings &settings,
                                        const std::string &content) {
  auto tokenizer =
      tokenizer::Tokenizer::load(settings.place + "/" + kTokenizerFile);
  if (!tokenizer.ok())
    return tokenizer.status();
  std::vector<uint32_t> ids;
  tokenizer::Encoder encoder(*tokenizer);
  encoder.encode(content, tokenizer::SpecialText::Plain, ids);
  std::vector<uint32_t> starts = encoder.encodeFramed("");
  return TokenizedText{{ids.begin(), ids.end()},
                       {starts.begin(), starts.end()}};
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

// Whether the model's matrices can be written, judged by their shapes.
static Status checkWritable(const models::ModelSpec &spec,
                            QuantizedLayout layout) {
  for (const models::Parameter &each : models::parameters(spec)) {
    const std::size_t rank = each.shape.size();
    if (each.layer < 0 || rank < 2 || each.keepF32 || each.frozen)
      continue;
    layout.rows = each.shape[rank - 2];
    layout.columns = each.shape[rank - 1];
    const bool transposed = spec.family == models::Family::Gpt2,
               isStack = rank == 3;
    if (transposed)
      std::swap(layout.rows, layout.columns);
    if (layout.rows < kMicropanel || layout.columns < kQuantBlock ||
        (isStack && layout.rows % kMicropanel != 0))
      continue; // is not quantized
    TESSERA_RETURN_IF_ERROR(checkPackable(each.name, layout, transposed));
  }
  return Status::success();
}

// The windows of the samples, which follow the start tokens.
static Status checkWindow(const QuantizeSettings &settings,
                          const models::ModelSpec &spec,
                          const TokenizedText &text) {
  if (settings.window + int64_t(text.starts.size()) <= spec.maxPositions)
    return Status::success();
  return Status::error("windows of {} tokens after {} start tokens do not fit "
                       "the model's {} positions; lower --window",
                       settings.window, text.starts.size(), spec.maxPositions);
}

// Checks the options without reading the model.
static Status checkAsked(const QuantizeSettings &settings) {
  const bool isNone = settings.asks("inference.quant=none"),
             isCache = settings.asks("inference.kv=int8");
  if (isNone && !settings.output.empty())
    return Status::error("--quant none does not change weights; omit -o");
  if (isNone && !settings.calibrate.empty())
    return Status::error("--quant none does not quantize weights, so there are "
                         "no scales to calibrate; omit --calibrate");
  if (isNone && std::ranges::any_of(settings.quant, [](const auto &each) {
        return each.starts_with("inference.group=") ||
               each.starts_with("inference.zeros=");
      }))
    return Status::error("--quant none does not quantize weights; omit "
                         "--quant-group and --quant-zeros");
  if (isNone && settings.text.empty())
    return Status::error("--quant none only measures perplexity; give --text "
                         "FILE, or choose --quant int8, int4 or fp8");
  if (settings.asks("inference.quant=fp8") && !settings.calibrate.empty())
    return Status::error(
        "--calibrate chooses scales for integers, whose steps are uniform; "
        "those of fp8 grow with the weights. Omit it, or choose int8 or int4");
  if (settings.asks("inference.quant=fp8") &&
      settings.asks("inference.zeros=groups"))
    return Status::error("--quant fp8 has no zero points; omit --quant-zeros, "
                         "or choose int8 or int4");
  if (isCache && settings.text.empty())
    return Status::error("--kv only affects the measurement and is not "
                         "written; give --text FILE, or omit --kv");
  if (settings.output.empty() && settings.text.empty())
    return Status::error("nothing to do: give -o DIR2, --text FILE or both");
  return settings.output.empty() ? Status::success()
                                 : checkNewDirectory(settings.output);
}

// The contents of --text and --calibrate; empty if not given.
static StatusOr<std::array<std::string, 2>>
readContents(const QuantizeSettings &settings) {
  std::array<std::string, 2> contents;
  for (auto [file, to] : {std::pair(&settings.text, &contents[0]),
                          {&settings.calibrate, &contents[1]}}) {
    if (file->empty())
      continue;
    auto read = readContent(*file);
    if (!read.ok())
      return read.status();
    *to = read.take();
  }
  return contents;
}

// Whether the model can be quantized, and calibrated if requested.
static Status checkModel(const QuantizeSettings &settings,
                         const models::LoadedConfig &config) {
  if (config.stored && !settings.asks("inference.quant=none"))
    return Status::error(
        "the weights of '{}' are quantized already; measure them with --quant "
        "none --text FILE, or quantize the original model",
        settings.place);
  // Quantized weights of one would be refused when it is read.
  if (config.spec.isEncoder() && config.spec.hasScore)
    return Status::error(
        "'{}' is a cross-encoder, whose quantized weights have "
        "no format to be written in; quantize them when they "
        "are read: --quant of tessera serve",
        settings.place);
  if (settings.calibrate.empty())
    return Status::success();
  return models::scaledInputs(config.spec).status();
}

static StatusOr<QuantizeSamples>
tokenizeSamples(const QuantizeSettings &settings, const models::ModelSpec &spec,
                const std::array<std::string, 2> &contents) {
  QuantizeSamples samples;
  for (auto [content, to] : {std::pair(&contents[0], &samples.text),
                             {&contents[1], &samples.sample}}) {
    if (content->empty())
      continue;
    auto read = tokenize(settings, *content);
    if (!read.ok())
      return read.status();
    *to = read.take();
  }
  if (samples.text && samples.text->tokens.size() < 2)
    return Status::error(
        "{}: has one token, which leaves none to predict; give a longer text",
        settings.text);
  if (samples.sample)
    TESSERA_RETURN_IF_ERROR(
        checkLength({samples.sample->tokens, samples.sample->starts,
                     settings.calibrate, settings.window}));
  for (const auto *each : {&samples.text, &samples.sample})
    if (*each)
      TESSERA_RETURN_IF_ERROR(checkWindow(settings, spec, **each));
  return samples;
}

Status tessera::quantize(QuantizeSettings settings) {
  TESSERA_RETURN_IF_ERROR(checkAsked(settings));
  auto contents = readContents(settings);
  if (!contents.ok())
    return contents.status();
  if (models::isGguf(settings.place))
    return Status::error("'{}' is a GGUF file, and quantize reads directories; "
                         "convert it first: tessera import {} -o DIR",
                         settings.place, settings.place);
  auto directory = findModelDirectory(settings.place);
  if (!directory)
    return Status::error("'{}' is not a model directory: it has no config.json",
                         settings.place);
  settings.place = *directory;
  auto config = models::loadHfConfig(settings.place);
  if (!config.ok())
    return config.status();
  TESSERA_RETURN_IF_ERROR(checkModel(settings, *config));
  auto rounding = readRounding(settings);
  if (!rounding.ok())
    return rounding.status();
  if (!settings.output.empty())
    TESSERA_RETURN_IF_ERROR(checkWritable(config->spec, *rounding));
  auto samples = tokenizeSamples(settings, config->spec, *contents);
  if (!samples.ok())
    return samples.status();
  return quantizeModel(settings, config->spec, *rounding, *samples);
}
