// tessera serve: serves a trained run or another model over the OpenAI API.
#include "compiler/api/ServeModel.h"
#include "tools/tessera/AdapterOptions.h"
#include "tools/tessera/CacheOptions.h"
#include "tools/tessera/Commands.h"
#include "tools/tessera/MeshOptions.h"
#include "tools/tessera/Note.h"
#include "tools/tessera/QuantOptions.h"
#include <CLI/CLI.hpp>
#include <cstdlib>
#include <fmt/format.h>
#include <memory>

using namespace tessera;

namespace {

struct ServeCommand {
  ServeSettings settings;
  MeshSettings mesh;
  uint64_t cacheGib = kCacheGib, keptGib = kKeptGib;
};

} // namespace

// A key on the command line is visible to every user of the machine.
static void readKeyFromEnvironment(serve::ServiceOptions &service) {
  const char *key = std::getenv("TESSERA_API_KEY");
  if (key && *key && service.apiKeys.empty())
    service.apiKeys.emplace_back(key);
}

static Status runServe(ServeCommand &command, InferenceRanks *ranks) {
  ServeSettings &settings = command.settings;
  readKeyFromEnvironment(settings.serve.service);
  settings.serve.service.version = TESSERA_VERSION;
  settings.choice.decoder.cacheBytes = command.cacheGib << 30;
  settings.choice.decoder.mesh = command.mesh.mesh;
  settings.keptBytes = command.keptGib << 30;
  settings.note = note;
  return serveModel(settings, ranks);
}

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
                  "speculative decoding: maximum draft tokens of a sequence "
                  "per step, found by prompt lookup (n-gram) unless --draft is "
                  "given; 0: off, or with --draft no maximum")
      ->check(CLI::Range(0, 64))
      ->capture_default_str();
  command
      .add_option("--draft", settings.draft,
                  "smaller model with the same tokenizer that proposes tokens "
                  "for speculative decoding; the output is the same without")
      ->type_name("RUN|DIR|FILE");
  command.add_flag("--request-priorities", settings.serve.service.priorities,
                   "requests may set `priority`, whatever their key: those of "
                   "a lower number run first, and preempt others");
  command
      .add_option_function<std::string>(
          "--otlp-traces-endpoint",
          [&settings](const std::string &url) {
            auto collector = serve::parseCollectorUrl(url);
            if (!collector.ok())
              throw CLI::ValidationError("--otlp-traces-endpoint",
                                         collector.message());
            settings.serve.traces = collector.take();
          },
          "OpenTelemetry collector for traces of requests, as "
          "http://HOST:4318/v1/traces; OTEL_SERVICE_NAME is the service's name")
      ->type_name("URL");
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
  auto given = std::make_shared<ServeCommand>();
  ServeSettings *settings = &given->settings;
  settings->choice.decoder.command = "serve";
  CLI::App *command =
      app.add_subcommand("serve", "Serve a trained run or a Hugging Face model "
                                  "over HTTP with the OpenAI API");
  command
      ->add_option(
          "RUN|DIR|FILE", settings->choice.place,
          "run directory, checkpoint (RUN/step-000100), model directory "
          "(Hugging Face), name of a model in the Hugging Face cache, GGUF "
          "file, or packaged model (tessera compile DIR --mode infer)")
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
  addCacheOptions(*command, settings->choice.decoder.cache, given->cacheGib,
                  "of compiled programs and, for CPUs, of a model directory's "
                  "weights");
  addWeightCacheOption(
      *command, given->keptGib,
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
  addMeshOptions(*command, given->mesh);
  command->callback([given, &invocation] {
    runOnRanks(given->mesh, invocation,
               [&](InferenceRanks *ranks) { return runServe(*given, ranks); });
  });
}
