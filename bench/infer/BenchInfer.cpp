#include "bench/infer/BenchInfer.h"
#include "bench/infer/InferCost.h"
#include "bench/infer/InferTable.h"
#include "compiler/api/OpenedModel.h"
#include "hardware/Targets.h"
#include "runtime/hal/cpu/ThreadPool.h"
#include "runtime/recipe/Recipe.h"
#include <fmt/format.h>
#include <map>
#include <memory>
#include <random>

using namespace tessera;
using artifact::ElementType;

// In the program, packed weights are words of several weights each.
static std::string keptAs(const StateTensor &tensor, ElementType type) {
  if (!tensor.quantized)
    return artifact::EnumNameElementType(type);
  const auto &layout = tensor.quantized->layout;
  if (layout.floats)
    return "fp8";
  if (layout.superBlocks)
    return fmt::format("q{}_K", layout.bits);
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
    return std::pair(each.first.starts_with("int") || each.first == "fp8" ||
                         each.first.starts_with("q"),
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

// Two words of a super-block's scales: d = dmin = 2^-12, then 16
// scales, or eight scales and eight minima that center the weights.
static uint64_t superScalesOf(const QuantizedLayout &layout, uint64_t word) {
  constexpr uint64_t both = 0x0000'0001'0000'0001;
  const uint64_t row = word / (kMicropanel / 2) % QuantizedLayout::kSuperScales;
  if (row == 0)
    return both * 0x0c00'0c00;
  if (!layout.minima())
    return both * 0x0404'0404;
  const uint64_t minimum = layout.bits == 4 ? 0x3c : 0x3e;
  const uint64_t each = row < 3 ? (layout.bits == 4 ? 8 : 4) : minimum;
  return both * 0x0101'0101 * each;
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
                   : layout.superBlocks
                       ? superScalesOf(layout, at / sizeof(uint64_t) + i)
                   : isZeros ? minusOne
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
openRandom(const BenchInferSettings &settings, const std::string &program,
           InferenceRanks *ranks) {
  hal::SessionOptions options;
  options.deviceOptions.threads = settings.threads;
  options.deviceOptions.cpuTarget = settings.target;
  options.recordOptions.profile = settings.profile || ranks;
  if (ranks)
    options.mesh = ranks->context();
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

static StatusOr<std::unique_ptr<SessionModel>>
openWeights(const BenchInferSettings &settings, const ModelSource &source,
            const std::string &program, InferenceRanks *ranks) {
  if (settings.random)
    return openRandom(settings, program, ranks);
  GenerateOptions weights;
  weights.program = program;
  weights.device = settings.target.empty() ? "cpu" : settings.target;
  weights.threads = settings.threads;
  weights.profile = settings.profile || ranks;
  weights.ranks = ranks;
  if (!source.note.empty())
    fmt::print(stderr, "{}\n", source.note);
  return source.packaged ? openPackagedModel(*source.packaged, weights)
                         : openModelDirectory(source.weights, weights);
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
  decoding.mesh = settings.mesh;
  decoding.packed = settings.mesh.empty();
  if (llvm::Error error =
          compileModelDecoder(source.files, source.spec, decoding,
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

namespace {
/// Nanoseconds in the steps of a test's programs.
struct ProgramTime {
  uint64_t all = 0, collectives = 0;
};
} // namespace

static ProgramTime timeOf(const hal::Session &session, std::string_view test) {
  const std::string_view programs =
      test.starts_with("pp") ? "prefill_" : "decode_";
  ProgramTime time;
  for (const hal::Profile *profile : session.profiles())
    if (profile->program().starts_with(programs)) {
      time.all += profile->nanoseconds();
      time.collectives += profile->collectiveNanoseconds();
    }
  return time;
}

static Status checkSizes(const BenchInferSettings &settings,
                         const DecoderShape &shape) {
  if (std::max(settings.bench.prompt, settings.bench.generate) > shape.context)
    return Status::error(
        "the programs have a context of {} tokens; lower --pp or --tg",
        shape.context);
  if (settings.bench.batch > shape.buckets.back())
    return Status::error(
        "the programs decode {} sequences together; lower --batch",
        shape.buckets.back());
  return Status::success();
}

namespace {
/// One benchmark; on ranks, this rank's part of it.
class InferRun {
public:
  InferRun(BenchInferSettings &settings, InferenceRanks *ranks)
      : settings(settings), ranks(ranks) {}
  /// Finds, compiles and opens the model; on ranks all call it.
  Status open();
  /// On one of several ranks: computes what rank 0 does.
  Status follow();
  /// Measures and prints.
  Status measure();

private:
  Status compile();
  Status check() const;

  BenchInferSettings &settings;
  InferenceRanks *ranks;
  TemporaryFile program;
  std::optional<ModelSource> source;
  std::unique_ptr<SessionModel> model;
};
} // namespace

Status InferRun::check() const {
  if (settings.bench.prompt == 0 && settings.bench.generate == 0)
    return Status::error("nothing to measure: --pp and --tg are both 0");
  if (settings.bench.generate == 0 && settings.bench.batch > 1)
    return Status::error("--batch is of decoding, and --tg is 0; leave one "
                         "out");
  return Status::success();
}

Status InferRun::compile() {
  if (source->packaged)
    return Status::success();
  auto make = [&] { return compilePrograms(settings, *source, program); };
  return ranks ? ranks->broadcastFile(make, program.name()) : make();
}

Status InferRun::open() {
  TESSERA_RETURN_IF_ERROR(check());
  auto found = findBenched(settings);
  if (!found.ok())
    return found.status();
  source = found.take();
  if (ranks)
    TESSERA_RETURN_IF_ERROR(checkSharded(settings.place, source));
  if (settings.threads == 0)
    settings.threads = ranks ? ranks->threads() : hal::availableProcessors();
  settings.bench.threads = settings.threads;
  settings.bench.hasLimits = !ranks;
  if (llvm::Error error = program.create())
    return Status::error("{}", llvm::toString(std::move(error)));
  TESSERA_RETURN_IF_ERROR(compile());
  auto openHere = [&] {
    auto opened = openWeights(settings, *source, program.name(), ranks);
    if (opened.ok())
      model = opened.take();
    return opened.status();
  };
  return ranks ? ranks->work(openHere) : openHere();
}

Status InferRun::follow() {
  auto programs = DecodePrograms::create(model->get());
  return programs.ok() ? ranks->follow(**programs) : programs.status();
}

Status InferRun::measure() {
  hal::Session &session = model->get();
  auto programs = DecodePrograms::create(session);
  if (!programs.ok())
    return programs.status();
  std::unique_ptr<PagedModel> paged = programs.take();
  Decoder decoder(ranks ? ranks->lead(std::move(paged)) : std::move(paged));
  TESSERA_RETURN_IF_ERROR(checkSizes(settings, decoder.shape()));
  const InferModel columns = describe(source->spec, *model);
  TESSERA_RETURN_IF_ERROR(choosePeak(*model, columns, settings.bench));
  std::map<std::string, ProgramTime, std::less<>> warmUp;
  settings.bench.warmedUp = [&](std::string_view test) {
    warmUp.emplace(test, timeOf(session, test));
  };
  auto result =
      bench::benchInfer(decoder,
                        costOf(source->spec, *model, decoder.shape(),
                               settings.bench.prompt, settings.bench.batch),
                        settings.bench);
  if (!result.ok())
    return result.status();
  InferTable table{settings, columns, *result};
  if (ranks)
    for (const bench::InferTest &test : result->tests) {
      const ProgramTime time = timeOf(session, test.name),
                        before = warmUp[test.name];
      table.collectives.push_back(
          double(time.collectives - before.collectives) /
          double(time.all - before.all));
    }
  table.print();
  if (settings.profile)
    for (const hal::Profile *profile : session.profiles())
      if (profile->nanoseconds() > 0)
        fmt::print(stderr, "{}\n", profile->table());
  return Status::success();
}

Status tessera::benchInfer(BenchInferSettings &settings,
                           InferenceRanks *ranks) {
  InferRun run(settings, ranks);
  Status opened = run.open();
  if (ranks)
    opened = ranks->begin(opened);
  TESSERA_RETURN_IF_ERROR(opened);
  return ranks && !ranks->leads() ? run.follow() : run.measure();
}
