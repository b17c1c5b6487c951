// tessera serve: a trained run or another model behind the OpenAI API.
#include "runtime/serve/Serve.h"
#include "runtime/infer/DecodePrograms.h"
#include "tools/tessera/CacheOptions.h"
#include "tools/tessera/Commands.h"
#include "tools/tessera/EncoderProgram.h"
#include "tools/tessera/OpenedModel.h"
#include "tools/tessera/QuantOptions.h"
#include <CLI/CLI.hpp>
#include <cstdlib>
#include <fmt/format.h>
#include <memory>

using namespace tessera;

namespace {

struct ServeSettings {
  ModelChoice choice;
  serve::ServeOptions serve;
  uint64_t cacheGib = kCacheGib, keptGib = kKeptGib;
};

} // namespace

// A key on the command line can be read by every user of the machine.
static void readKeyFromEnvironment(ServeSettings &settings) {
  const char *key = std::getenv("TESSERA_API_KEY");
  if (key && *key && settings.serve.service.apiKeys.empty())
    settings.serve.service.apiKeys.emplace_back(key);
}

//===--- what is served ---------------------------------------------------===//

static void note(std::string_view line) {
  fmt::print(stderr, "tessera: {}\n", line);
}

// Draws as generation_config.json says where a request says nothing.
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
  if (settings.serve.engine.scheduler.drafts > 0 ||
      settings.choice.decoder.pages)
    return Status::error("--speculate and --kv-pages are for models that "
                         "generate; '{}' embeds",
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

static Status serveText(ServeSettings &settings,
                        std::optional<ModelSource> source) {
  serve::ServiceOptions &service = settings.serve.service;
  OpenedModel opened;
  TESSERA_RETURN_IF_ERROR(opened.read(settings.choice, std::move(source)));
  takeSampling(opened.config, service.sampling);
  TESSERA_RETURN_IF_ERROR(checkSampling(service.sampling));
  std::string line;
  TESSERA_RETURN_IF_ERROR(opened.readChat(line));
  if (!line.empty())
    note(line);
  settings.serve.phases.end("tokenizer");
  TESSERA_RETURN_IF_ERROR(opened.open(/*mayScore=*/false, note));
  service.version = TESSERA_VERSION;
  service.endTokens = opened.endTokens;
  service.startToken = opened.startToken;
  if (service.models.empty())
    service.models = {opened.name};
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
      kept.remove(); // with --cache redo there may be some
      Status status = kept.store(std::move(stop), most);
      note(status.ok() ? fmt::format("weights are kept in {} for the next "
                                     "start",
                                     kept.path())
                       : "weights are not kept: " + status.message());
    };
  return serve::serve(**programs, *opened.tokenizer, opened.chat(),
                      settings.serve);
}

static Status serveModel(ServeSettings &settings) {
  readKeyFromEnvironment(settings);
  TESSERA_RETURN_IF_ERROR(settings.serve.takeAddress());
  settings.serve.phases.end("process");
  settings.choice.phases = &settings.serve.phases;
  settings.choice.keepsWeights = settings.keptGib > 0;
  settings.choice.decoder.cacheBytes = settings.cacheGib << 30;
  settings.choice.decoder.note = note;
  auto found = findModel(settings.choice.place);
  if (!found.ok())
    return found.status();
  const std::optional<ModelSource> source = found.take();
  const DecoderSettings &decoder = settings.choice.decoder;
  if (source && source->packaged && (decoder.batch || decoder.pages))
    return Status::error("'{}' is compiled already: --max-batch and --kv-pages "
                         "are inference.batch and inference.pages of tessera "
                         "compile --set",
                         settings.choice.place);
  return source && source->spec.isEncoder() ? serveEncoder(settings, *source)
                                            : serveText(settings, source);
}

//===--- the command ------------------------------------------------------===//

static std::string isName(const std::string &text) {
  return text.empty() ? "must not be empty" : "";
}

static void addServingOptions(CLI::App &command, ServeSettings &settings) {
  command
      .add_option("--host", settings.serve.host,
                  "address to listen on; 0.0.0.0: all of the machine's")
      ->capture_default_str();
  command.add_option("--port", settings.serve.port, "0: one that is free")
      ->check(CLI::Range(0, 65535))
      ->capture_default_str();
  command
      .add_option("--api-key", settings.serve.service.apiKeys,
                  "that clients must give, may stand several times; also "
                  "TESSERA_API_KEY")
      ->allow_extra_args(false) // or it takes RUN as well
      ->check(isName);
  command
      .add_option(
          "--served-model-name", settings.serve.service.models,
          "that clients may ask for, may stand several times; answers "
          "have the first; default: the folder's, or the file's without .tsr")
      ->allow_extra_args(false)
      ->check(isName);
  command
      .add_option("--max-queue", settings.serve.engine.maxRequests,
                  "unfinished requests; more are answered 429")
      ->check(CLI::Range(1, 1 << 16))
      ->capture_default_str();
  command
      .add_option("--max-connections", settings.serve.http.connections,
                  "of clients; with more, one that waits for its next request "
                  "is closed")
      ->check(CLI::Range(1, 1 << 16))
      ->capture_default_str();
  command
      .add_option("--stored-answers", settings.serve.service.store.count,
                  "responses, and chats with store: true, that are kept in "
                  "memory to be asked for again; 0: none")
      ->check(CLI::Range(0, 1 << 24))
      ->capture_default_str();
  command
      .add_option("--stored-bytes", settings.serve.service.store.bytes,
                  "memory for them; those that nobody asked for longest make "
                  "room. Responses that are made in the background have as "
                  "much beside it, until they are done")
      ->check(CLI::Range(std::size_t(1) << 16, std::size_t(1) << 40))
      ->capture_default_str();
  command
      .add_option("--speculate", settings.serve.engine.scheduler.drafts,
                  "tokens to guess at a time from a text's own past; 0: none")
      ->check(CLI::Range(0, 64))
      ->capture_default_str();
  command
      .add_option("--request-timeout", settings.serve.requestSeconds,
                  "seconds until a request is given up")
      ->check(CLI::Range(1, 86400))
      ->capture_default_str();
  command
      .add_option("--drain-timeout", settings.serve.drainSeconds,
                  "seconds that requests have to finish after SIGTERM")
      ->check(CLI::Range(0, 86400))
      ->capture_default_str();
}

static void addContextOption(CLI::App &command, std::vector<std::string> &set) {
  command
      .add_option_function<int64_t>(
          "--max-context",
          [&set](int64_t tokens) {
            set.push_back(fmt::format("inference.context={}", tokens));
          },
          "of a model directory: tokens of a prompt and its answer together, "
          "at most the model's own; default: the recipe's inference.context, "
          "or 4096")
      ->check(CLI::Range(int64_t(1), int64_t(1) << 24))
      ->type_name("N");
}

void tessera::addServeCommand(CLI::App &app, Invocation &invocation) {
  auto settings = std::make_shared<ServeSettings>();
  settings->choice.decoder.command = "serve";
  CLI::App *command = app.add_subcommand(
      "serve", "Serve a trained run or a Hugging Face model over HTTP, as "
               "OpenAI's API has it");
  command
      ->add_option("RUN|DIR|FILE", settings->choice.place,
                   "run directory, one checkpoint of it (RUN/step-000100), a "
                   "Hugging Face model: its directory, or its name where the "
                   "hub's cache has it; or the file that tessera compile DIR "
                   "--mode infer made")
      ->required();
  command
      ->add_option("--recipe", settings->choice.recipe,
                   "of a model directory: what its programs are made for")
      ->type_name("FILE");
  command
      ->add_option("--set", settings->choice.set,
                   "on top of the recipe, such as inference.context=512; "
                   "repeatable")
      ->type_name("KEY=VALUE")
      ->allow_extra_args(false);
  addQuantOptions(*command, settings->choice.set);
  addKvOption(*command, settings->choice.set);
  addContextOption(*command, settings->choice.set);
  addCacheOptions(*command, settings->choice.decoder.cache, settings->cacheGib,
                  "of compiled programs and, for CPUs, of a model directory's "
                  "weights");
  addWeightCacheOption(*command, settings->keptGib,
                       "GiB that the weights of models may take in the cache; "
                       "0: they are neither kept nor read from there");
  command
      ->add_option("--max-batch", settings->choice.decoder.batch,
                   "sequences that decode together, or texts that are embedded "
                   "together; default: the recipe's inference.batch, or 8")
      ->check(CLI::Range(1, 4096));
  command
      ->add_option("--kv-pages", settings->choice.decoder.pages,
                   "pages of the cache, 0: enough for a full batch; default: "
                   "the recipe's inference.pages, or 0")
      ->check(CLI::Range(0, 1 << 26));
  command
      ->add_option("--device", settings->choice.decoder.device,
                   "where to run: cpu, cuda:0, cuda-emu")
      ->type_name("NAME")
      ->envname("TESSERA_DEVICE")
      ->capture_default_str();
  command
      ->add_option("--threads", settings->choice.threads, "0: all processors")
      ->envname("TESSERA_THREADS")
      ->capture_default_str();
  addServingOptions(*command, *settings);
  command->callback([=, &invocation] {
    if (Status status = serveModel(*settings); !status.ok())
      invocation.fail(status.message().c_str());
  });
}
