// tessera serve: a trained run or a Hugging Face model behind the OpenAI API.
#include "runtime/serve/Serve.h"
#include "models/HfConfig.h"
#include "runtime/infer/DecodePrograms.h"
#include "runtime/serve/ModelChat.h"
#include "runtime/train/Generate.h"
#include "runtime/train/ModelDirectory.h"
#include "tools/tessera/Commands.h"
#include "tools/tessera/DecoderProgram.h"
#include "tools/tessera/EncoderProgram.h"
#include "tools/tessera/QuantOptions.h"
#include <CLI/CLI.hpp>
#include <cstdlib>
#include <filesystem>
#include <fmt/format.h>
#include <memory>
#include <optional>

using namespace tessera;

namespace {

struct ServeSettings {
  std::string place;            ///< a run or a model directory
  std::string model;            ///< the name that clients give
  std::string recipe;           ///< of a model directory's programs
  std::vector<std::string> set; ///< on top of it
  DecoderSettings decoder{.batch = 8, .command = "serve"};
  unsigned threads = 0;
  serve::ServeOptions serve;
};

} // namespace

// A key on the command line can be read by every user of the machine.
static void readKeyFromEnvironment(ServeSettings &settings) {
  const char *key = std::getenv("TESSERA_API_KEY");
  if (key && *key && settings.serve.service.apiKeys.empty())
    settings.serve.service.apiKeys.emplace_back(key);
}

//===--- what is served ---------------------------------------------------===//

namespace {

/// A model with what its texts are made of.
struct Served {
  std::optional<OpenedEncoder> encoder; ///< then nothing of what follows
  std::unique_ptr<SessionModel> model;
  std::optional<tokenizer::Tokenizer> tokenizer;
  std::unique_ptr<serve::ChatRenderer> chat; ///< null: ChatML
};

} // namespace

static void note(std::string_view line) {
  fmt::print(stderr, "tessera: {}\n", line);
}

static Status readTokenizer(const std::string &folder, Served &served) {
  auto tokenizer = tokenizer::Tokenizer::load(folder + "/" + kTokenizerFile);
  if (tokenizer.ok())
    served.tokenizer = tokenizer.take();
  return tokenizer.status();
}

static GenerateOptions optionsOf(const ServeSettings &settings,
                                 const std::string &program) {
  GenerateOptions options;
  options.program = program;
  options.device = settings.decoder.device;
  options.threads = settings.threads;
  return options;
}

static Status openTrained(ServeSettings &settings, const std::string &program,
                          Served &served) {
  StatusOr<RunPath> place = resolveRun(settings.place);
  if (!place.ok())
    return place.status();
  if (!settings.recipe.empty() || !settings.set.empty())
    return Status::error("--recipe, --set and --quant are for model "
                         "directories; a run has its recipe");
  GenerateOptions options = optionsOf(settings, program);
  // What can be said at once is said before anything is compiled.
  TESSERA_RETURN_IF_ERROR(checkGenerate(*place, options));
  TESSERA_RETURN_IF_ERROR(readTokenizer(place->run, served));
  if (llvm::Error error = compileDecoder(*place, settings.decoder, program))
    return Status::error("{}", llvm::toString(std::move(error)));
  auto opened = openRun(*place, options, note);
  if (!opened.ok())
    return opened.status();
  served.model = std::move(opened->model);
  settings.place = place->run;
  return Status::success();
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

static Status readDirectory(ServeSettings &settings, Served &served) {
  serve::ServiceOptions &service = settings.serve.service;
  StatusOr<GenerationConfig> config = loadGenerationConfig(settings.place);
  if (!config.ok())
    return config.status();
  takeSampling(*config, service.sampling);
  TESSERA_RETURN_IF_ERROR(checkSampling(service.sampling));
  auto ends = endTokensOf(settings.place, *config);
  if (!ends.ok())
    return ends.status();
  service.endTokens = ends.take();
  TESSERA_RETURN_IF_ERROR(readTokenizer(settings.place, served));
  std::string line;
  auto chat = serve::loadModelChat(settings.place, *served.tokenizer, line);
  if (!chat.ok())
    return chat.status();
  if (!line.empty())
    note(line);
  served.chat = chat.take();
  return Status::success();
}

static Status openEncoding(ServeSettings &settings,
                           const models::ModelSpec &spec,
                           const std::string &program, Served &served) {
  auto opened =
      openEncoder(settings.place, spec, settings.decoder, settings.recipe,
                  settings.set, optionsOf(settings, program), note);
  if (opened.ok())
    served.encoder = opened.take();
  return opened.status();
}

static Status openDirectory(ServeSettings &settings, const std::string &program,
                            Served &served) {
  TESSERA_RETURN_IF_ERROR(hal::checkDeviceName(settings.decoder.device));
  StatusOr<models::LoadedConfig> model = models::loadHfConfig(settings.place);
  if (!model.ok())
    return model.status();
  if (model->spec.isEncoder())
    return openEncoding(settings, model->spec, program, served);
  TESSERA_RETURN_IF_ERROR(readDirectory(settings, served));
  if (llvm::Error error =
          compileModelDecoder(settings.place, model->spec, settings.decoder,
                              settings.recipe, settings.set, program))
    return Status::error("{}", llvm::toString(std::move(error)));
  GenerateOptions options = optionsOf(settings, program);
  auto opened = openModelDirectory(settings.place, options);
  if (opened.ok())
    served.model = opened.take();
  return opened.status();
}

static Status serveModel(ServeSettings &settings) {
  readKeyFromEnvironment(settings);
  TemporaryFile program;
  if (llvm::Error error = program.create())
    return Status::error("{}", llvm::toString(std::move(error)));
  serve::ServiceOptions &service = settings.serve.service;
  service.version = TESSERA_VERSION;
  service.model = settings.model;
  Served served;
  if (auto directory = findModelDirectory(settings.place)) {
    if (service.model.empty() && *directory != settings.place)
      service.model = settings.place; // the hub's name
    settings.place = *directory;
    TESSERA_RETURN_IF_ERROR(openDirectory(settings, program.name(), served));
  } else {
    TESSERA_RETURN_IF_ERROR(openTrained(settings, program.name(), served));
  }
  if (service.model.empty()) {
    auto folder = std::filesystem::absolute(settings.place).lexically_normal();
    service.model = folder.filename().empty()
                        ? folder.parent_path().filename().string()
                        : folder.filename().string();
  }
  if (served.encoder)
    return serve::serveEmbeddings(*served.encoder->programs,
                                  served.encoder->tokenizer,
                                  served.encoder->facts, settings.serve);
  auto programs = DecodePrograms::create(served.model->get());
  if (!programs.ok())
    return programs.status();
  return serve::serve(**programs, *served.tokenizer,
                      served.chat ? *served.chat : serve::chatMl(),
                      settings.serve);
}

//===--- the command ------------------------------------------------------===//

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
      ->check([](const std::string &key) {
        return key.empty() ? std::string("must not be empty") : std::string();
      });
  command.add_option("--model-name", settings.model,
                     "that clients ask for; default: the folder's");
  command
      .add_option("--max-queue", settings.serve.engine.maxRequests,
                  "unfinished requests; more are answered 429")
      ->check(CLI::Range(1, 1 << 16))
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

void tessera::addServeCommand(CLI::App &app, Invocation &invocation) {
  auto settings = std::make_shared<ServeSettings>();
  CLI::App *command = app.add_subcommand(
      "serve", "Serve a trained run or a Hugging Face model over HTTP, as "
               "OpenAI's API has it");
  command
      ->add_option("RUN|DIR", settings->place,
                   "run directory, one checkpoint of it (RUN/step-000100), or "
                   "a Hugging Face model: its directory, or its name where the "
                   "hub's cache has it")
      ->required();
  command
      ->add_option("--recipe", settings->recipe,
                   "of a model directory: what its programs are made for")
      ->type_name("FILE");
  command
      ->add_option("--set", settings->set,
                   "on top of the recipe, such as inference.context=512; "
                   "repeatable")
      ->type_name("KEY=VALUE")
      ->allow_extra_args(false);
  addQuantOptions(*command, settings->set);
  command
      ->add_option("--cache", settings->decoder.cache,
                   "of compiled programs: on; off; redo; readonly, as of "
                   "tessera compile")
      ->type_name("MODE")
      ->capture_default_str();
  command
      ->add_option("--max-batch", settings->decoder.batch,
                   "sequences that decode together, or texts that are embedded "
                   "together")
      ->check(CLI::Range(1, 4096))
      ->capture_default_str();
  command
      ->add_option("--kv-pages", settings->decoder.pages,
                   "pages of the cache; 0: enough for a full batch")
      ->check(CLI::Range(0, 1 << 26))
      ->capture_default_str();
  command
      ->add_option("--device", settings->decoder.device,
                   "where to run: cpu, cuda:0, cuda-emu")
      ->type_name("NAME")
      ->capture_default_str();
  command->add_option("--threads", settings->threads, "0: all processors")
      ->capture_default_str();
  addServingOptions(*command, *settings);
  command->callback([=, &invocation] {
    if (Status status = serveModel(*settings); !status.ok())
      invocation.fail(status.message().c_str());
  });
}
