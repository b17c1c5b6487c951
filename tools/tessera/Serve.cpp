// tessera serve: a trained run behind the OpenAI API.
#include "runtime/serve/Serve.h"
#include "runtime/infer/DecodePrograms.h"
#include "runtime/train/Generate.h"
#include "tools/tessera/Commands.h"
#include "tools/tessera/DecoderProgram.h"
#include <CLI/CLI.hpp>
#include <cstdlib>
#include <filesystem>
#include <fmt/format.h>
#include <memory>

using namespace tessera;

namespace {

struct ServeSettings {
  std::string run, model;
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

static Status serveRun(ServeSettings &settings) {
  readKeyFromEnvironment(settings);
  StatusOr<RunPath> place = resolveRun(settings.run);
  if (!place.ok())
    return place.status();
  GenerateOptions options;
  options.device = settings.decoder.device;
  options.threads = settings.threads;
  // What can be said at once is said before anything is compiled.
  TESSERA_RETURN_IF_ERROR(checkGenerate(*place, options));
  TemporaryFile program;
  llvm::Error error = program.create();
  if (!error)
    error = compileDecoder(*place, settings.decoder, program.name());
  if (error)
    return Status::error("{}", llvm::toString(std::move(error)));
  options.program = program.name();
  auto note = [](std::string_view line) {
    fmt::print(stderr, "tessera: {}\n", line);
  };
  auto opened = openRun(*place, options, note);
  if (!opened.ok())
    return opened.status();
  auto tokenizer =
      tokenizer::Tokenizer::load(place->run + "/" + kTokenizerFile);
  if (!tokenizer.ok())
    return tokenizer.status();
  auto programs = DecodePrograms::create(opened->model->get());
  if (!programs.ok())
    return programs.status();
  serve::ServiceOptions &service = settings.serve.service;
  service.version = TESSERA_VERSION;
  service.model = settings.model;
  if (service.model.empty()) {
    auto folder = std::filesystem::absolute(place->run).lexically_normal();
    service.model = folder.filename().string();
  }
  return serve::serve(**programs, *tokenizer, serve::chatMl(), settings.serve);
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
      ->check([](const std::string &key) {
        return key.empty() ? std::string("must not be empty") : std::string();
      });
  command.add_option("--model-name", settings.model,
                     "that clients ask for; default: the run's folder");
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
      "serve", "Serve a trained run over HTTP, as OpenAI's API has it");
  command
      ->add_option("RUN", settings->run,
                   "run directory, or one checkpoint of it (RUN/step-000100)")
      ->required();
  command
      ->add_option("--max-batch", settings->decoder.batch,
                   "sequences that decode together")
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
    if (Status status = serveRun(*settings); !status.ok())
      invocation.fail(status.message().c_str());
  });
}
