// tessera serve: serves a trained run or another model over the OpenAI API.
#include "runtime/serve/Serve.h"
#include "compiler/api/EncoderProgram.h"
#include "compiler/api/OpenedModel.h"
#include "runtime/infer/DecodePrograms.h"
#include "tools/tessera/AdapterOptions.h"
#include "tools/tessera/CacheOptions.h"
#include "tools/tessera/Commands.h"
#include "tools/tessera/MeshOptions.h"
#include "tools/tessera/Note.h"
#include "tools/tessera/QuantOptions.h"
#include "tools/tessera/ServeTraining.h"
#include <CLI/CLI.hpp>
#include <csignal>
#include <cstdlib>
#include <fmt/format.h>
#include <memory>

using namespace tessera;

namespace {

struct ServeSettings {
  ModelChoice choice;
  MeshSettings mesh;
  serve::ServeOptions serve;
  AdapterSettings adapters;
  TrainingSettings training;
  uint64_t cacheGib = kCacheGib, keptGib = kKeptGib;
};

} // namespace

// A key on the command line is visible to every user of the machine.
static void readKeyFromEnvironment(ServeSettings &settings) {
  const char *key = std::getenv("TESSERA_API_KEY");
  if (key && *key && settings.serve.service.apiKeys.empty())
    settings.serve.service.apiKeys.emplace_back(key);
}

//===--- the model ------------------------------------------------------===//

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

static Status serveEncoder(ServeSettings &settings, const ModelSource &source) {
  if (settings.adapters.isUsed() || settings.training.adapters > 0)
    return Status::error("--adapter and --train apply only to models that "
                         "generate text; '{}' is an encoder",
                         settings.choice.place);
  if (settings.serve.engine.scheduler.drafts > 0 ||
      settings.choice.decoder.pages)
    return Status::error("--speculate and --kv-pages apply only to models that "
                         "generate text; '{}' is an encoder",
                         settings.choice.place);
  TemporaryFile program;
  if (llvm::Error error = program.create())
    return Status::error("{}", llvm::toString(std::move(error)));
  GenerateOptions options;
  options.program = program.name();
  options.device = settings.choice.decoder.device;
  options.threads = settings.choice.threads;
  options.phases = &settings.serve.phases;
  auto encoder = openEncoder(source, settings.choice, options, note);
  if (!encoder.ok())
    return encoder.status();
  serve::ServiceOptions &service = settings.serve.service;
  service.version = TESSERA_VERSION;
  if (service.models.empty())
    service.models = {source.name};
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
                       OpenedModel &opened) {
  serve::ServiceOptions &service = settings.serve.service;
  TESSERA_RETURN_IF_ERROR(settings.adapters.apply(settings.choice, source));
  TESSERA_RETURN_IF_ERROR(opened.read(settings.choice, std::move(source)));
  takeSampling(opened.config, service.sampling);
  TESSERA_RETURN_IF_ERROR(checkSampling(service.sampling));
  std::string line;
  TESSERA_RETURN_IF_ERROR(opened.readChat(line));
  if (!line.empty())
    say(line);
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

static Status serveText(ServeSettings &settings,
                        std::optional<ModelSource> source) {
  TESSERA_RETURN_IF_ERROR(startTraining(settings, source));
  serve::ServiceOptions &service = settings.serve.service;
  InferenceRanks *ranks = settings.choice.ranks;
  const bool leads = !ranks || ranks->leads();
  OpenedModel opened;
  Status status = openText(
      settings, std::move(source),
      leads ? TextSink(note) : [](std::string_view) {}, opened);
  if (ranks)
    status = ranks->begin(status);
  TESSERA_RETURN_IF_ERROR(status);
  if (!leads)
    return follow(opened);
  service.version = TESSERA_VERSION;
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
    note(fmt::format("weights are mapped from {}", opened.weights.mapped));
  for (const hal::TensorInfo &tensor : opened.model->get().state())
    if (tensor.role == artifact::Role::cache)
      settings.serve.cacheBytes += tensor.bytes;
  if (opened.weights.unkept)
    settings.serve.whenReady = [&kept = *opened.weights.unkept,
                                most = settings.keptGib << 30](auto stop) {
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

static Status serveModel(ServeSettings &settings, InferenceRanks *ranks) {
  readKeyFromEnvironment(settings);
  settings.choice.ranks = ranks;
  settings.choice.phases = &settings.serve.phases;
  settings.choice.keepsWeights = settings.keptGib > 0;
  settings.choice.decoder.cacheBytes = settings.cacheGib << 30;
  settings.choice.decoder.mesh = settings.mesh.mesh;
  if (!ranks || ranks->leads())
    settings.choice.decoder.note = note;
  auto found = findServed(settings);
  Status status = found.status();
  if (ranks)
    status = ranks->agree(status);
  TESSERA_RETURN_IF_ERROR(status);
  const std::optional<ModelSource> source = found.take();
  return source && source->spec.isEncoder() ? serveEncoder(settings, *source)
                                            : serveText(settings, source);
}

//===--- the command ----------------------------------------------------===//

static std::string isName(const std::string &text) {
  return text.empty() ? "must not be empty" : "";
}

static void addServingOptions(CLI::App &command, ServeSettings &settings) {
  command
      .add_option("--host", settings.serve.host,
                  "address to listen on; 0.0.0.0: all interfaces")
      ->capture_default_str();
  command
      .add_option("--port", settings.serve.port,
                  "port to listen on; 0: any free port")
      ->check(CLI::Range(0, 65535))
      ->capture_default_str();
  command
      .add_option(
          "--api-key", settings.serve.service.apiKeys,
          "key that clients must send; repeatable; also TESSERA_API_KEY")
      ->allow_extra_args(false) // or it consumes RUN as well
      ->check(isName);
  command
      .add_option(
          "--served-model-name", settings.serve.service.models,
          "model name that clients may request; repeatable; responses use the "
          "first (default: name of the directory, or of the file without .tsr)")
      ->allow_extra_args(false)
      ->check(isName);
  command
      .add_option(
          "--max-queue", settings.serve.engine.maxRequests,
          "maximum number of unfinished requests; further ones get status 429")
      ->check(CLI::Range(1, 1 << 16))
      ->capture_default_str();
  command
      .add_option(
          "--max-connections", settings.serve.http.connections,
          "maximum number of connections; beyond it, an idle one is closed")
      ->check(CLI::Range(1, 1 << 16))
      ->capture_default_str();
  command
      .add_option("--stored-answers", settings.serve.service.store.count,
                  "maximum number of stored responses and chats (with store: "
                  "true); 0: none")
      ->check(CLI::Range(0, 1 << 24))
      ->capture_default_str();
  command
      .add_option("--stored-bytes", settings.serve.service.store.bytes,
                  "memory limit of stored responses; the least recently used "
                  "are evicted. Background responses in progress have a "
                  "separate limit of the same size")
      ->check(CLI::Range(std::size_t(1) << 16, std::size_t(1) << 40))
      ->capture_default_str();
  command
      .add_option("--speculate", settings.serve.engine.scheduler.drafts,
                  "draft tokens per step for prompt-lookup (n-gram) "
                  "speculative decoding; 0: off")
      ->check(CLI::Range(0, 64))
      ->capture_default_str();
  command
      .add_option("--request-timeout", settings.serve.requestSeconds,
                  "seconds after which a request is aborted")
      ->check(CLI::Range(1, 86400))
      ->capture_default_str();
  command
      .add_option("--drain-timeout", settings.serve.drainSeconds,
                  "seconds for requests to finish after SIGTERM")
      ->check(CLI::Range(0, 86400))
      ->capture_default_str();
}

static void addAdapterOptions(CLI::App &command, AdapterSettings &adapters) {
  command
      .add_option_function<std::vector<std::string>>(
          "--adapter",
          [&adapters](const std::vector<std::string> &all) {
            for (const std::string &each : all) {
              const auto equals = each.find('=');
              if (equals == each.npos || equals == 0 ||
                  equals + 1 == each.size())
                throw CLI::ValidationError(
                    "--adapter", "must be NAME=DIR, got '" + each + "'");
              adapters.given.push_back(
                  {each.substr(0, equals), each.substr(equals + 1)});
            }
          },
          "LoRA or DoRA adapter that requests select by giving NAME as the "
          "model: "
          "a directory in PEFT's layout; repeatable")
      ->allow_extra_args(false)
      ->type_name("NAME=DIR");
  addAdapterSlotOptions(
      command, adapters,
      "adapters that can be loaded at once; requests may load and unload them "
      "(default: the number of --adapter, and they stay)");
}

static void addTrainingOptions(CLI::App &command, TrainingSettings &training) {
  command
      .add_option("--train", training.adapters,
                  "train up to N adapters by requests (/v1/training), as the "
                  "recipe says; clients sample from them by their names")
      ->check(CLI::Range(1, 2047)) // of 4096 slots
      ->type_name("N");
  command
      .add_option("--train-directory", training.directory,
                  "directory in which requests save trained adapters, and from "
                  "which they load them")
      ->type_name("DIR");
}

static void addContextOption(CLI::App &command, std::vector<std::string> &set) {
  command
      .add_option_function<int64_t>(
          "--max-context",
          [&set](int64_t tokens) {
            set.push_back(fmt::format("inference.context={}", tokens));
          },
          "maximum tokens of a prompt and its answer together, for a model "
          "directory (default: the recipe's inference.context, or 4096)")
      ->check(CLI::Range(int64_t(1), int64_t(1) << 24))
      ->type_name("N");
}

void tessera::addServeCommand(CLI::App &app, Invocation &invocation) {
  auto settings = std::make_shared<ServeSettings>();
  settings->choice.decoder.command = "serve";
  CLI::App *command =
      app.add_subcommand("serve", "Serve a trained run or a Hugging Face model "
                                  "over HTTP with the OpenAI API");
  command
      ->add_option(
          "RUN|DIR|FILE", settings->choice.place,
          "run directory, checkpoint (RUN/step-000100), model directory "
          "(Hugging Face), name of a model in the Hugging Face cache, or "
          "packaged model (tessera compile DIR --mode infer)")
      ->required();
  command
      ->add_option(
          "--recipe", settings->choice.recipe,
          "recipe.yaml of the inference programs, for a model directory")
      ->type_name("FILE");
  command
      ->add_option("--set", settings->choice.set,
                   "override a key of the recipe, such as "
                   "inference.context=512; repeatable")
      ->type_name("KEY=VALUE")
      ->allow_extra_args(false);
  addQuantOptions(*command, settings->choice.set);
  addKvOption(*command, settings->choice.set);
  addContextOption(*command, settings->choice.set);
  addCacheOptions(*command, settings->choice.decoder.cache, settings->cacheGib,
                  "of compiled programs and, for CPUs, of a model directory's "
                  "weights");
  addWeightCacheOption(
      *command, settings->keptGib,
      "size limit of the weight cache in GiB; 0: neither read nor write it");
  command
      ->add_option(
          "--max-batch", settings->choice.decoder.batch,
          "maximum batch: sequences that decode together, or inputs that are "
          "embedded together (default: the recipe's inference.batch, or 8)")
      ->check(CLI::Range(1, 4096));
  command
      ->add_option("--kv-pages", settings->choice.decoder.pages,
                   "pages of the KV cache; 0: enough for a full batch "
                   "(default: the recipe's inference.pages, or 0)")
      ->check(CLI::Range(0, 1 << 26));
  command
      ->add_option("--device", settings->choice.decoder.device,
                   "device to run on: cpu, cuda:0, cuda-emu")
      ->type_name("NAME")
      ->envname("TESSERA_DEVICE")
      ->capture_default_str();
  command
      ->add_option("--threads", settings->choice.threads, "0: all processors")
      ->envname("TESSERA_THREADS")
      ->capture_default_str();
  addAdapterOptions(*command, settings->adapters);
  addTrainingOptions(*command, settings->training);
  addServingOptions(*command, *settings);
  addMeshOptions(*command, settings->mesh);
  command->callback([=, &invocation] {
    runOnRanks(settings->mesh, invocation, [&](InferenceRanks *ranks) {
      return serveModel(*settings, ranks);
    });
  });
}
