#include "compiler/api/ServeModel.h"
#include "compiler/api/DraftSource.h"
#include "compiler/api/EncoderProgram.h"
#include "runtime/hal/cpu/ThreadPool.h"
#include "runtime/infer/DecodePrograms.h"
#include <csignal>
#include <fmt/format.h>
#include <memory>

using namespace tessera;

// generation_config.json gives the default sampling parameters of requests.
static void takeSampling(const GenerationConfig &config,
                         SamplingOptions &sampling) {
  sampling.temperature = config.temperature.value_or(sampling.temperature);
  sampling.topK = config.topK.value_or(sampling.topK);
  sampling.topP = config.topP.value_or(sampling.topP);
  sampling.minP = config.minP.value_or(sampling.minP);
  sampling.repetitionPenalty =
      config.repetitionPenalty.value_or(sampling.repetitionPenalty);
}

// Embeddings, or scores of pairs.
static Status serveEncoder(ServeSettings &settings, const ModelSource &source) {
  if (settings.adapters.isUsed() || settings.training.adapters > 0)
    return Status::error("--adapter and --train apply only to models that "
                         "generate text; '{}' does not",
                         settings.choice.place);
  if (settings.serve.engine.scheduler.drafts > 0 || !settings.draft.empty() ||
      settings.choice.decoder.pages)
    return Status::error("--speculate, --draft and --kv-pages apply only to "
                         "models that generate text; '{}' does not",
                         settings.choice.place);
  TemporaryFile program;
  if (llvm::Error error = program.create())
    return Status::error("{}", llvm::toString(std::move(error)));
  GenerateOptions options;
  options.program = program.name();
  options.device = settings.choice.decoder.device;
  options.threads = settings.choice.threads;
  options.phases = &settings.serve.phases;
  serve::ServiceOptions &service = settings.serve.service;
  if (service.models.empty())
    service.models = {source.name};
  if (source.spec.hasScore) {
    auto reranker = openReranker(source, settings.choice, options);
    if (!reranker.ok())
      return reranker.status();
    return serve::serveRanking(*reranker->programs, reranker->tokenizer,
                               reranker->facts, settings.serve);
  }
  auto encoder = openEncoder(source, settings.choice, options, settings.note);
  if (!encoder.ok())
    return encoder.status();
  return serve::serveEmbeddings(*encoder->programs, encoder->tokenizer,
                                encoder->facts, settings.serve);
}

// Into the slots of the opened model.
static Status loadAdapters(const AdapterSettings &adapters, ModelState &model,
                           serve::ServiceOptions &service) {
  if (adapters.isUsed() && adapterSlots(model) == 0)
    return Status::error("the packaged model has no slots for adapters; "
                         "compile it with --adapter-slots N");
  if (adapters.slots > 0 && adapterSlots(model) != adapters.slots)
    return Status::error("the programs have {} slots for adapters, and "
                         "--adapter-slots says {}; give the same number",
                         adapterSlots(model), adapters.slots);
  service.adapters = std::make_shared<serve::Adapters>(model);
  service.changesAdapters = adapters.slots > 0;
  for (const auto &[name, directory] : adapters.given)
    TESSERA_RETURN_IF_ERROR(
        service.adapters->load(name, directory, service.models));
  return Status::success();
}

// Reads and opens the model; on ranks, on each of them.
static Status openText(ServeSettings &settings,
                       std::optional<ModelSource> source, const TextSink &say,
                       OpenedModel &opened, DraftSource &draft) {
  serve::ServiceOptions &service = settings.serve.service;
  TESSERA_RETURN_IF_ERROR(settings.adapters.apply(settings.choice, source));
  TESSERA_RETURN_IF_ERROR(opened.read(settings.choice, std::move(source)));
  takeSampling(opened.config, service.sampling);
  TESSERA_RETURN_IF_ERROR(checkSampling(service.sampling));
  std::string line;
  TESSERA_RETURN_IF_ERROR(opened.readChat(line));
  if (!line.empty())
    say(line);
  if (!settings.draft.empty())
    TESSERA_RETURN_IF_ERROR(
        draft.read(settings.draft, settings.choice, *opened.tokenizer));
  settings.serve.phases.end("tokenizer");
  return opened.open(/*mayScore=*/false, say);
}

// Signals to end are for rank 0, which tells the others.
static Status follow(OpenedModel &opened) {
  std::signal(SIGINT, SIG_IGN);
  std::signal(SIGTERM, SIG_IGN);
  return opened.follow();
}

// Compiles the learner before the engine, whose keys are other ones.
static Status startTraining(ServeSettings &settings,
                            const std::optional<ModelSource> &source) {
  if (settings.training.adapters == 0)
    return Status::success();
  const ModelChoice asked = settings.choice;
  TESSERA_RETURN_IF_ERROR(
      prepareTraining(settings.training, settings.choice, source));
  auto training = openTraining(settings.training, asked, *source);
  if (!training.ok())
    return training.status();
  settings.serve.service.training = training.take();
  settings.serve.phases.end("learner");
  // Examples of a step, each token with numbers as text.
  constexpr std::size_t kBodyBytes = std::size_t(16) << 20;
  settings.serve.http.bodyBytes = kBodyBytes;
  return Status::success();
}

// Whatever is computed, it is by one model at a time.
static Status shareThreads(ServeSettings &settings) {
  if (settings.draft.empty() ||
      !settings.choice.decoder.device.starts_with("cpu"))
    return Status::success();
  const unsigned threads = settings.choice.threads;
  auto pool =
      hal::ThreadPool::create(threads ? threads : hal::availableProcessors());
  if (pool.ok())
    settings.choice.pool = pool.take();
  return pool.status();
}

static Status openDraft(ServeSettings &settings, const DecoderShape &shape,
                        DraftSource &draft) {
  SchedulerOptions &options = settings.serve.engine.scheduler;
  const bool isGiven = !settings.draft.empty();
  if ((options.drafts > 0 || isGiven) && shape.states > 0)
    return Status::error("{}: the recurrent layers of '{}' cannot return from "
                         "a draft that is refused; omit it",
                         isGiven ? "--draft" : "--speculate",
                         settings.choice.place);
  if (!isGiven)
    return Status::success();
  TESSERA_RETURN_IF_ERROR(draft.open(shape, settings.note));
  options.draft = &draft.model();
  if (options.drafts == 0)
    options.drafts = shape.buckets.back(); // as many as are worth it
  settings.serve.phases.end("draft model");
  return Status::success();
}

static Status serveText(ServeSettings &settings,
                        std::optional<ModelSource> source) {
  TESSERA_RETURN_IF_ERROR(shareThreads(settings));
  TESSERA_RETURN_IF_ERROR(startTraining(settings, source));
  serve::ServiceOptions &service = settings.serve.service;
  InferenceRanks *ranks = settings.choice.ranks;
  const bool leads = !ranks || ranks->leads();
  OpenedModel opened;
  DraftSource draft;
  Status status = openText(
      settings, std::move(source),
      leads ? settings.note : [](std::string_view) {}, opened, draft);
  if (ranks)
    status = ranks->begin(status);
  TESSERA_RETURN_IF_ERROR(status);
  if (!leads)
    return follow(opened);
  service.endTokens = opened.endTokens;
  service.startToken = opened.startToken;
  if (service.models.empty())
    service.models = {opened.name};
  TESSERA_RETURN_IF_ERROR(
      loadAdapters(settings.adapters, *opened.model, service));
  auto programs = DecodePrograms::create(opened.model->get());
  if (!programs.ok())
    return programs.status();
  if (!opened.weights.mapped.empty())
    settings.note(
        fmt::format("weights are mapped from {}", opened.weights.mapped));
  TESSERA_RETURN_IF_ERROR(openDraft(settings, (*programs)->shape(), draft));
  for (const hal::TensorInfo &tensor : opened.model->get().state())
    if (tensor.role == artifact::Role::cache ||
        tensor.role == artifact::Role::recurrent)
      settings.serve.cacheBytes += tensor.bytes;
  if (opened.weights.unkept)
    settings.serve.whenReady = [&kept = *opened.weights.unkept,
                                most = settings.keptBytes,
                                note = settings.note](auto stop) {
      kept.remove(); // --cache redo leaves older ones
      Status status = kept.store(std::move(stop), most);
      note(status.ok()
               ? fmt::format("weights are stored in {} for the next start",
                             kept.path())
               : "weights are not stored: " + status.message());
    };
  std::unique_ptr<PagedModel> model = programs.take();
  if (ranks)
    model = ranks->lead(std::move(model));
  return serve::serve(*model, *opened.tokenizer, opened.chat(), settings.serve);
}

// What cannot be done on several ranks.
static Status checkMesh(const ServeSettings &settings,
                        const std::optional<ModelSource> &source) {
  if (settings.adapters.isUsed())
    return Status::error("--adapter: models on a mesh have no adapters; merge "
                         "it with tessera export --merge, or omit --mesh");
  if (settings.serve.engine.scheduler.drafts > 0)
    return Status::error("--speculate is for one process; omit it, or --mesh");
  if (!settings.draft.empty())
    return Status::error("--draft is for one process; omit it, or --mesh");
  return checkSharded(settings.choice.place, source);
}

// Before anything is compiled.
static Status checkTraining(const ServeSettings &settings) {
  if (settings.training.adapters == 0)
    return settings.training.directory.empty()
               ? Status::success()
               : Status::error("--train-directory has no effect without "
                               "--train N");
  if (settings.adapters.isUsed())
    return Status::error("--train has slots for the adapters that it trains; "
                         "omit --adapter and --adapter-slots");
  if (settings.choice.ranks)
    return Status::error("--train is for one process; omit it, or --mesh");
  return Status::success();
}

static StatusOr<std::optional<ModelSource>>
findServed(ServeSettings &settings) {
  const bool leads = !settings.choice.ranks || settings.choice.ranks->leads();
  if (leads)
    TESSERA_RETURN_IF_ERROR(settings.serve.takeAddress());
  settings.serve.phases.end("process");
  auto found = findModel(settings.choice.place);
  if (!found.ok())
    return found;
  if (settings.choice.ranks)
    TESSERA_RETURN_IF_ERROR(checkMesh(settings, *found));
  TESSERA_RETURN_IF_ERROR(checkTraining(settings));
  const DecoderSettings &decoder = settings.choice.decoder;
  if (*found && (*found)->packaged && (decoder.batch || decoder.pages))
    return Status::error("'{}' is compiled already: set --max-batch and "
                         "--kv-pages when compiling it (tessera compile --set "
                         "inference.batch=N --set inference.pages=N)",
                         settings.choice.place);
  return found;
}

Status tessera::serveModel(ServeSettings &settings, InferenceRanks *ranks) {
  settings.choice.ranks = ranks;
  settings.choice.phases = &settings.serve.phases;
  settings.choice.keepsWeights = settings.keptBytes > 0;
  if (!ranks || ranks->leads())
    settings.choice.decoder.note = settings.note;
  auto found = findServed(settings);
  Status status = found.status();
  if (ranks)
    status = ranks->agree(status);
  TESSERA_RETURN_IF_ERROR(status);
  const std::optional<ModelSource> source = found.take();
  return source && !source->spec.generates() ? serveEncoder(settings, *source)
                                             : serveText(settings, source);
}
