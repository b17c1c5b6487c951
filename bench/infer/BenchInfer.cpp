#include "bench/infer/BenchInfer.h"
#include "compiler/api/ModelSource.h"
#include "hardware/Targets.h"
#include "runtime/hal/cpu/ThreadPool.h"
#include "runtime/recipe/Recipe.h"
#include <cmath>
#include <fmt/format.h>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <random>
#include <set>

using namespace tessera;
using artifact::ElementType;

namespace {

/// The model's columns of the printed table.
struct InferModel {
  std::string name;
  uint64_t bytes = 0; ///< of all weights
  int64_t parameters = 0;
  std::string target;
  std::string kept; ///< the type of keys and values in the cache
};

/// Embedding tables: a token reads one row.
bool isOnlyGathered(const models::ModelSpec &spec, std::string_view name) {
  return name.ends_with("wpe.weight") ||
         (!spec.tieWordEmbeddings && (name.ends_with("embed_tokens.weight") ||
                                      name.ends_with("wte.weight")));
}

bool isHead(const models::ModelSpec &spec, std::string_view name) {
  return spec.tieWordEmbeddings ? name.ends_with("embed_tokens.weight") ||
                                      name.ends_with("wte.weight")
                                : name == "lm_head.weight";
}

} // namespace

// Each matrix is read once per decoded token, and is applied to every token of
// a prompt. Of experts only the routed ones count; the head is applied only to
// the prompt's last token.
static bench::InferCost costOf(const models::ModelSpec &spec,
                               const SessionModel &model,
                               const DecoderShape &shape, int64_t prompt,
                               int64_t batch) {
  bench::InferCost cost;
  // A tied table is only gathered if the head has a quantized copy of it.
  std::set<std::string, std::less<>> copied;
  for (const StateTensor &tensor : model.state())
    if (tensor.quantized)
      copied.insert(tensor.quantized->source);
  const auto tokens = double(prompt);
  const double chosen =
      spec.moe ? double(spec.moe->chosen) / double(spec.moe->experts) : 1;
  auto isOfExperts = [&](std::string_view name) {
    return spec.moe && name.find('*') != std::string_view::npos;
  };
  auto shareOf = [&](std::string_view name) {
    return isOfExperts(name) ? chosen : 1.0;
  };
  // Of the experts that a batch reads if its tokens choose independently.
  auto readShareOf = [&](std::string_view name) {
    return isOfExperts(name) ? 1 - std::pow(1 - chosen, double(batch)) : 1.0;
  };
  for (const hal::TensorInfo &tensor : model.get().state()) {
    if (tensor.role == artifact::Role::cache)
      cost.cacheBytes +=
          double(tensor.bytes) / double(shape.pages * shape.page);
    else if (tensor.role == artifact::Role::parameter &&
             !isOnlyGathered(spec, tensor.name) &&
             !copied.contains(tensor.name))
      cost.weightBytes += double(tensor.bytes) * readShareOf(tensor.name);
  }
  for (const models::Parameter &each : models::parameters(spec))
    if (each.shape.size() > 1 && !isOnlyGathered(spec, each.name))
      cost.promptFlops += 2 * shareOf(each.name) * double(each.elements()) *
                          (isHead(spec, each.name) ? 1 : tokens);
  // Attention scores and their matmul with values, for keys at or before each
  // token.
  for (int64_t layer = 0; layer < spec.layers; ++layer) {
    double seen = tokens * (tokens + 1) / 2;
    if (int64_t window = spec.window(layer); window > 0 && window < prompt)
      seen = double(window) * (tokens - double(window - 1) / 2);
    cost.promptFlops += 4 * seen * double(spec.queryWidth());
  }
  return cost;
}

// In the program, packed weights are words of several weights each.
static std::string keptAs(const StateTensor &tensor, ElementType type) {
  if (!tensor.quantized)
    return artifact::EnumNameElementType(type);
  const auto &layout = tensor.quantized->layout;
  if (layout.floats)
    return "fp8";
  return layout.hasScales() ? fmt::format("int{}", layout.bits) : "bf16";
}

static InferModel describe(const models::ModelSpec &spec,
                           const SessionModel &opened) {
  InferModel model;
  const hal::Session &session = opened.get();
  std::map<std::string, uint64_t, std::less<>> bytes;
  for (const hal::TensorInfo &tensor : session.state()) {
    if (tensor.role == artifact::Role::cache && model.kept.empty())
      model.kept = tensor.type == ElementType::i8
                       ? "int8"
                       : artifact::EnumNameElementType(tensor.type);
    if (tensor.role != artifact::Role::parameter)
      continue;
    auto known =
        std::ranges::find(opened.state(), tensor.name, &StateTensor::name);
    bytes[known == opened.state().end()
              ? artifact::EnumNameElementType(tensor.type)
              : keptAs(*known, tensor.type)] += tensor.bytes;
    model.bytes += tensor.bytes;
  }
  // A model is named after its quantized type, even if its tables are larger.
  auto rank = [](const auto &each) {
    return std::pair(each.first.starts_with("int") || each.first == "fp8",
                     each.second);
  };
  auto most = std::ranges::max_element(bytes, {}, rank);
  model.name = fmt::format("{} {}", name(spec.family),
                           most == bytes.end() ? "" : most->first);
  model.parameters = models::parameterCount(spec);
  model.target = std::string(session.target());
  return model;
}

// As many f16 scales as fit into a word.
static uint64_t scalesOf(const QuantizedLayout &layout) {
  const uint64_t each = layout.floats      ? 0x2800  // 2^-5
                        : layout.bits == 8 ? 0x0c00  // 2^-12
                                           : 0x1c00; // 2^-8
  return each * 0x0001'0001'0001'0001;
}

static uint64_t valuesOf(const QuantizedLayout &layout, uint64_t drawn) {
  if (!layout.hasScales()) // bf16 of magnitudes from 2^-7 to 2^-6
    return (drawn & 0x807f'807f'807f'807f) | 0x3c00'3c00'3c00'3c00;
  if (layout.floats) // below 2
    return drawn & 0xbfbf'bfbf'bfbf'bfbf;
  return layout.bits == 8 ? drawn | 0x0101'0101'0101'0101 : drawn; // no -128
}

// Quantized weights have no initializer. Unwritten, their pages would all map
// to one page of zeros, which is read faster than real weights. The values are
// about as large as those of initializers.
static Status drawQuantized(SessionModel &model, int64_t seed) {
  constexpr uint64_t kPiece = uint64_t(1) << 22;
  std::mt19937_64 draw{uint64_t(seed)};
  std::vector<uint64_t> words(kPiece / sizeof(uint64_t));
  for (const StateTensor &tensor : model.state()) {
    if (!tensor.quantized)
      continue;
    const QuantizedLayout &layout = tensor.quantized->layout;
    const uint64_t scales = scalesOf(layout),
                   minusOne = 0xbc00'bc00'bc00'bc00; // a zero point as f16
    for (uint64_t at = 0; at < tensor.size; at += kPiece) {
      for (size_t i = 0; i < words.size(); ++i) {
        const bool isZeros = layout.zeros && i / 4 % 2;
        words[i] = !tensor.quantized->isScales ? valuesOf(layout, draw())
                   : isZeros                   ? minusOne
                                               : scales;
      }
      TESSERA_RETURN_IF_ERROR(
          model.writeState(tensor, at,
                           std::as_bytes(std::span(words))
                               .first(std::min(kPiece, tensor.size - at))));
    }
  }
  return Status::success();
}

// The compute precision of prefill, whatever type the weights are stored in.
static StatusOr<recipe::Precision> computeOf(const SessionModel &model) {
  auto told = recipe::parseRecipe(model.facts().recipe, "the program's recipe");
  if (!told.ok())
    return told.status();
  return told->compute;
}

static StatusOr<std::unique_ptr<SessionModel>>
openWeights(const BenchInferSettings &settings, const ModelSource &source,
            const std::string &program) {
  hal::SessionOptions options;
  options.deviceOptions.threads = settings.threads;
  options.deviceOptions.cpuTarget = settings.target;
  options.recordOptions.profile = settings.profile;
  if (settings.random) {
    StatusOr<ArtifactReader> reader = ArtifactReader::open(program);
    if (!reader.ok())
      return reader.status();
    auto model = SessionModel::open(*reader, options);
    if (model.ok()) {
      TESSERA_RETURN_IF_ERROR((*model)->initialize(settings.seed));
      TESSERA_RETURN_IF_ERROR(drawQuantized(**model, settings.seed));
    }
    return model;
  }
  GenerateOptions weights;
  weights.program = program;
  weights.device = settings.target.empty() ? "cpu" : settings.target;
  weights.threads = settings.threads;
  weights.profile = settings.profile;
  return source.packaged ? openPackagedModel(*source.packaged, weights)
                         : openModelDirectory(source.files.place(), weights);
}

//===--- lines ----------------------------------------------------------===//

static void printTable(const BenchInferSettings &settings,
                       const InferModel &model,
                       const bench::InferBenchResult &result) {
  fmt::print("| model | size | params | backend | threads | test | t/s | of "
             "the limit |\n| --- | ---: | ---: | --- | ---: | ---: | ---: | "
             "--- |\n");
  for (const bench::InferTest &test : result.tests) {
    std::string limit = test.name.starts_with("pp")
                            ? fmt::format("{:.1f} GFLOP/s, {}",
                                          test.limit / 1e9, result.instruction)
                            : fmt::format("{:.1f} GB/s read", test.limit / 1e9);
    fmt::print("| {} | {:.2f} GiB | {:.2f} B | {} | {} | {} | {:.2f} ± {:.2f} "
               "| {:.1f} % of {} |\n",
               model.name + (model.kept == "int8" ? ", kv int8" : ""),
               double(model.bytes) / double(1 << 30),
               double(model.parameters) / 1e9, model.target, settings.threads,
               test.name, bench::meanOf(test.rates),
               bench::deviationOf(test.rates), 100 * test.ofLimit, limit);
  }
}

static void printJson(const BenchInferSettings &settings,
                      const InferModel &model,
                      const bench::InferBenchResult &result) {
  for (const bench::InferTest &test : result.tests) {
    const bool isPrompt = test.name.starts_with("pp");
    nlohmann::ordered_json line{
        {"bench", "infer"},
        {"model", model.name},
        {"model_size", model.bytes},
        {"model_n_params", model.parameters},
        {"type_k", model.kept}, // as llama-bench names them
        {"type_v", model.kept},
        {"backend", model.target},
        {"n_threads", settings.threads},
        {"n_prompt", isPrompt ? settings.bench.prompt : 0},
        {"n_gen", isPrompt ? 0 : settings.bench.generate},
        {"n_batch_decode", isPrompt ? 0 : settings.bench.batch},
        {"test", test.name},
        {"avg_ts", bench::meanOf(test.rates)},
        {"stddev_ts", bench::deviationOf(test.rates)},
        {"samples_ts", test.rates},
        {"samples_s", test.seconds},
        {isPrompt ? "peak_flops" : "read_bandwidth", test.limit},
        {"of_limit", test.ofLimit},
        {"of_limit_cpu", test.ofLimitBusy}};
    if (isPrompt)
      line["instruction"] = result.instruction;
    fmt::print("{}\n", line.dump());
  }
}

//===--- the command ----------------------------------------------------===//

// The chunk size of llama-bench, and a context and batch that fit both tests.
static Status compilePrograms(const BenchInferSettings &settings,
                              const ModelSource &source,
                              const TemporaryFile &program) {
  std::vector<std::string> set{
      "inference.chunk=512",
      fmt::format("inference.context={}",
                  std::max({settings.bench.prompt, settings.bench.generate,
                            int64_t(512)})),
      fmt::format("inference.batch={}",
                  std::max(settings.bench.batch, int64_t(8)))};
  set.insert(set.end(), settings.set.begin(), settings.set.end());
  DecoderSettings decoding;
  decoding.cache = settings.cache;
  decoding.cacheBytes = settings.cacheBytes;
  decoding.command = "bench infer";
  // The runtime takes "avx2" for "cpu:avx2".
  if (llvm::StringRef target = settings.target; !target.empty())
    decoding.device = (target.starts_with("cpu:") ? "" : "cpu:") + target.str();
  decoding.packed = true;
  if (llvm::Error error =
          compileModelDecoder(source.files.place(), source.spec, decoding,
                              settings.recipe, set, program.name()))
    return Status::error("{}", llvm::toString(std::move(error)));
  return Status::success();
}

/// With random weights a directory needs only config.json.
static StatusOr<ModelSource> findBenched(const BenchInferSettings &settings) {
  auto found = findModel(settings.place);
  if (!found.ok())
    return found.status();
  if (!*found)
    return Status::error("'{}' is not a model directory: it has no config.json",
                         settings.place);
  TESSERA_RETURN_IF_ERROR(
      checkProgramOptions(**found, {{}, settings.recipe, settings.set}));
  if ((*found)->packaged && settings.random)
    return Status::error(
        "'{}' is a packaged model with weights; --random requires a directory",
        settings.place);
  return std::move(**found);
}

/// The peak that prefill is measured against.
static Status choosePeak(const SessionModel &opened, const InferModel &model,
                         bench::InferBenchOptions &bench) {
  auto compute = computeOf(opened);
  if (!compute.ok())
    return compute.status();
  const std::optional<TileTarget> target = lookupTileTarget(model.target);
  if (!target) // a packaged model of another version
    return Status::success();
  bench.vectorBits = static_cast<unsigned>(target->lanes) * 32;
  if (*compute == recipe::Precision::Bf16)
    bench.peakType = target->matrixTiles ? PeakType::bf16Matrix
                     : target->bf16Dot   ? PeakType::bf16
                                         : PeakType::fp32;
  return Status::success();
}

static void print(const BenchInferSettings &settings, const InferModel &model,
                  const bench::InferBenchResult &result,
                  const hal::Session &session) {
  settings.json ? printJson(settings, model, result)
                : printTable(settings, model, result);
  for (const hal::Profile *profile : session.profiles())
    if (profile->nanoseconds() > 0)
      fmt::print(stderr, "{}\n", profile->table());
}

Status tessera::benchInfer(BenchInferSettings &settings) {
  if (settings.bench.prompt == 0 && settings.bench.generate == 0)
    return Status::error("nothing to measure: --pp and --tg are both 0");
  if (settings.bench.generate == 0 && settings.bench.batch > 1)
    return Status::error("--batch is of decoding, and --tg is 0; leave one "
                         "out");
  auto found = findBenched(settings);
  if (!found.ok())
    return found.status();
  const ModelSource source = found.take();
  if (settings.threads == 0)
    settings.threads = hal::availableProcessors();
  settings.bench.threads = settings.threads;
  TemporaryFile program;
  if (llvm::Error error = program.create())
    return Status::error("{}", llvm::toString(std::move(error)));
  if (!source.packaged)
    TESSERA_RETURN_IF_ERROR(compilePrograms(settings, source, program));
  auto opened = openWeights(settings, source, program.name());
  if (!opened.ok())
    return opened.status();
  hal::Session &session = (*opened)->get();
  auto decoder = Decoder::create(session);
  if (!decoder.ok())
    return decoder.status();
  if (int64_t most = (*decoder)->shape().context;
      std::max(settings.bench.prompt, settings.bench.generate) > most)
    return Status::error(
        "the programs have a context of {} tokens; lower --pp or --tg", most);
  if (int64_t most = (*decoder)->shape().buckets.back();
      settings.bench.batch > most)
    return Status::error(
        "the programs decode {} sequences together; lower --batch", most);
  const InferModel model = describe(source.spec, **opened);
  TESSERA_RETURN_IF_ERROR(choosePeak(**opened, model, settings.bench));
  auto result =
      bench::benchInfer(**decoder,
                        costOf(source.spec, **opened, (*decoder)->shape(),
                               settings.bench.prompt, settings.bench.batch),
                        settings.bench);
  if (!result.ok())
    return result.status();
  print(settings, model, *result, session);
  return Status::success();
}
