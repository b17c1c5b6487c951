// tessera eval: measures a model on tasks of local files.
#include "compiler/api/AdapterSettings.h"
#include "compiler/api/OpenedModel.h"
#include "compiler/report/EvalReport.h"
#include "compiler/report/Page.h"
#include "runtime/data/FileOperations.h"
#include "runtime/eval/EngineModel.h"
#include "runtime/eval/Report.h"
#include "runtime/eval/ServerModel.h"
#include "runtime/infer/DecodePrograms.h"
#include "tools/tessera/CacheOptions.h"
#include "tools/tessera/Commands.h"
#include "tools/tessera/QuantOptions.h"
#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fmt/format.h>
#include <functional>
#include <memory>

using namespace tessera;

namespace {

struct EvalSettings {
  ModelChoice choice;
  std::string tasks, output, samples, html, judge, adapter;
  uint64_t cacheGib = kCacheGib, keptGib = kKeptGib;
  bool quiet = false;
};

} // namespace

// Before the model is read, which may take minutes.
static Status checkFolder(const std::string &path) {
  auto folder = std::filesystem::path(path).parent_path();
  if (path.empty() || folder.empty() || std::filesystem::is_directory(folder))
    return Status::success();
  return Status::error("{}: its folder does not exist", path);
}

// In one step: a reader sees the old file or the new one.
static Status writeText(const std::string &path, std::string_view text) {
  const std::filesystem::path whole(path);
  const std::string folder = whole.parent_path().string();
  return replaceFile(systemFiles(), folder.empty() ? "." : folder,
                     whole.filename().string(), text);
}

static Status writeSamples(const EvalSettings &settings,
                           const std::vector<std::string> &samples) {
  if (settings.samples.empty())
    return Status::success();
  std::string lines;
  for (const std::string &line : samples)
    lines += line + "\n";
  return writeText(settings.samples, lines);
}

/// What there is of an evaluation that failed.
static Status keepSamples(const EvalSettings &settings,
                          const std::vector<std::string> &samples,
                          const Status &failure) {
  if (samples.empty() || settings.samples.empty())
    return failure;
  if (Status status = writeSamples(settings, samples); !status.ok())
    return Status::error("{}; {}", failure.message(), status.message());
  return Status::error("{}; what the model said is in '{}'", failure.message(),
                       settings.samples);
}

static Status writeResults(const EvalSettings &settings,
                           const eval::Report &outcome,
                           const std::vector<std::string> &samples) {
  fmt::print("{}", eval::printTable(outcome.results));
  const std::string json = eval::printJson(outcome);
  if (!settings.output.empty())
    TESSERA_RETURN_IF_ERROR(writeText(settings.output, json));
  if (!settings.html.empty())
    TESSERA_RETURN_IF_ERROR(writeText(
        settings.html, report::page(outcome.model + ": evaluation",
                                    report::evalReport(json, samples))));
  return writeSamples(settings, samples);
}

// A missed gate is an error like others: one line each, and the exit code.
static void tellMissed(const std::vector<eval::GateOutcome> &gates,
                       Invocation &invocation) {
  for (const eval::GateOutcome &gate : gates)
    if (!gate.passed)
      invocation.fail(fmt::format("gate missed: {}, the value is {:.6g}",
                                  gate.text, gate.value)
                          .c_str());
}

using Note = std::function<void(std::string_view)>;

/// The header of a key; none of an unset variable.
static std::string bearerOf(const char *key) {
  return key && *key ? std::string("Bearer ") + key : std::string();
}

static Status runAndReport(const EvalSettings &settings,
                           const eval::TaskFile &file, eval::EvalModel &model,
                           const std::string &name, const std::string &source,
                           const Note &note, Invocation &invocation) {
  std::vector<std::string> unfinished;
  auto results = eval::runTasks(
      file, model, note,
      {settings.judge, bearerOf(std::getenv("TESSERA_JUDGE_API_KEY"))},
      &unfinished);
  if (!results.ok())
    return keepSamples(settings, unfinished, results.status());
  auto gates = eval::checkGates(file.gates, results->results);
  TESSERA_RETURN_IF_ERROR(
      writeResults(settings,
                   {TESSERA_VERSION, name, source, settings.adapter,
                    settings.tasks, results->results, gates},
                   results->samples));
  tellMissed(gates, invocation);
  return Status::success();
}

// A server has its own programs: options of them would have no effect.
static Status evaluateServer(const EvalSettings &settings,
                             const eval::TaskFile &file, const Note &note,
                             Invocation &invocation) {
  const std::string &url = settings.choice.place;
  if (!settings.choice.set.empty() || !settings.choice.recipe.empty() ||
      settings.choice.decoder.batch || !settings.adapter.empty())
    return Status::error("--adapter, --recipe, --set, --quant, --kv and "
                         "--batch do not apply to a server; give them to "
                         "tessera serve");
  for (const std::string &word : invocation.words)
    for (std::string_view option :
         {"--device", "--threads", "--cache", "--weight-cache"})
      if (word.starts_with(option))
        return Status::error("{} does not apply to a server; give it to "
                             "tessera serve",
                             word.substr(0, word.find('=')));
  for (const eval::Task &task : file.tasks)
    if (task.chat && task.kind == eval::TaskKind::multipleChoice)
      return Status::error(
          "task {}: chat: a server gives no log-likelihoods of "
          "chats; leave it out, or give the model itself",
          task.name);
  auto server = client::parseServerUrl(url);
  if (!server.ok())
    return server.status();
  server->authorization = bearerOf(std::getenv("TESSERA_API_KEY"));
  auto name = client::firstModel(*server);
  if (!name.ok())
    return name.status();
  eval::ServerModel model(*server, *name);
  return runAndReport(settings, file, model, *name, url, note, invocation);
}

static bool hasKind(const eval::TaskFile &file, eval::TaskKind kind) {
  return std::ranges::count(file.tasks, kind, &eval::Task::kind) > 0;
}

static Status readChat(const eval::TaskFile &file, OpenedModel &opened,
                       const Note &note) {
  auto chat = std::ranges::find(file.tasks, true, &eval::Task::chat);
  if (chat == file.tasks.end())
    return Status::success();
  if (opened.isRun)
    note(fmt::format("task {}: chat: a run's chats are rendered by ChatML; "
                     "export it for the template of its data",
                     chat->name));
  std::string lacks;
  TESSERA_RETURN_IF_ERROR(opened.readChat(lacks));
  if (lacks.empty())
    return Status::success();
  return Status::error(
      "task {}: chat: {} has no chat template (chat_template.jinja, or "
      "\"chat_template\" in tokenizer_config.json); leave it out",
      chat->name, opened.folder);
}

/// In the first slot of the model; null: none is given.
static StatusOr<std::shared_ptr<const AdapterSlot>>
loadedAdapter(const std::string &directory, OpenedModel &opened) {
  if (directory.empty())
    return std::shared_ptr<const AdapterSlot>();
  TESSERA_RETURN_IF_ERROR(loadAdapter(directory, opened));
  auto slot = std::make_shared<AdapterSlot>();
  slot->slot = 0;
  slot->number = 1;
  return std::shared_ptr<const AdapterSlot>(std::move(slot));
}

static Status evaluate(EvalSettings &settings, Invocation &invocation) {
  auto note = [&](std::string_view line) {
    if (!settings.quiet)
      fmt::print(stderr, "tessera: {}\n", line);
  };
  auto file = eval::loadTaskFile(settings.tasks);
  if (!file.ok())
    return file.status();
  for (const std::string *path :
       {&settings.output, &settings.samples, &settings.html})
    TESSERA_RETURN_IF_ERROR(checkFolder(*path));
  if (!settings.judge.empty() && !hasKind(*file, eval::TaskKind::winRate))
    return Status::error("--judge: {} has no task of kind win_rate",
                         settings.tasks);
  if (settings.choice.place.starts_with("http:") ||
      settings.choice.place.starts_with("https:"))
    return evaluateServer(settings, *file, note, invocation);
  ModelChoice &choice = settings.choice;
  choice.keepsWeights = settings.keptGib > 0;
  choice.decoder.cacheBytes = settings.cacheGib << 30;
  if (!settings.quiet)
    choice.decoder.note = note;
  auto source = findModel(choice.place);
  if (!source.ok())
    return source.status();
  if (*source && (*source)->packaged && choice.decoder.batch)
    return Status::error("'{}' is compiled already: set --batch when compiling "
                         "it (tessera compile --set inference.batch=N)",
                         choice.place);
  OpenedModel opened;
  TESSERA_RETURN_IF_ERROR(
      readModel(opened, choice, source.take(), settings.adapter));
  TESSERA_RETURN_IF_ERROR(readChat(*file, opened, note));
  TESSERA_RETURN_IF_ERROR(opened.open(/*mayScore=*/false, note));
  auto programs = DecodePrograms::create(opened.model->get());
  if (!programs.ok())
    return programs.status();
  auto adapter = loadedAdapter(settings.adapter, opened);
  if (!adapter.ok())
    return adapter.status();
  eval::EngineModel model(
      **programs, *opened.tokenizer,
      {opened.ends(), opened.startToken, &opened.chat(), *adapter});
  return runAndReport(settings, *file, model, opened.name, opened.source, note,
                      invocation);
}

static void addModelOptions(CLI::App &command, EvalSettings &settings) {
  ModelChoice &choice = settings.choice;
  command
      .add_option("--adapter", settings.adapter,
                  "LoRA or DoRA adapter to evaluate: a directory in PEFT's "
                  "layout, for a model directory or a packaged model")
      ->type_name("DIR");
  command
      .add_option(
          "--recipe", choice.recipe,
          "recipe.yaml of the inference programs, for a model directory")
      ->type_name("FILE");
  command
      .add_option("--set", choice.set,
                  "override a key of the recipe, such as inference.context=512 "
                  "or precision.compute=fp32; repeatable")
      ->type_name("KEY=VALUE")
      ->allow_extra_args(false);
  addQuantOptions(command, choice.set);
  addKvOption(command, choice.set);
  addCacheOptions(
      command, choice.decoder.cache, settings.cacheGib,
      "of compiled programs, and of weights that tessera serve stored");
  addWeightCacheOption(command, settings.keptGib,
                       "0: do not read weights that tessera serve stored; "
                       "other values only affect serve");
  command
      .add_option("--batch", choice.decoder.batch,
                  "sequences that decode together (default: the recipe's "
                  "inference.batch, or 8)")
      ->check(CLI::Range(1, 4096));
  command
      .add_option("--device", choice.decoder.device,
                  "device to run on: cpu, cuda:0, cuda-emu")
      ->type_name("NAME")
      ->envname("TESSERA_DEVICE")
      ->capture_default_str();
  command.add_option("--threads", choice.threads, "0: all processors")
      ->envname("TESSERA_THREADS")
      ->capture_default_str();
}

void tessera::addEvalCommand(CLI::App &app, Invocation &invocation) {
  auto settings = std::make_shared<EvalSettings>();
  settings->choice.decoder.command = "eval";
  CLI::App *command = app.add_subcommand(
      "eval", "Measure a model on tasks of local files: perplexity, multiple "
              "choice, exact match, required and forbidden outputs, win rate "
              "by a judge");
  command
      ->add_option(
          "RUN|DIR|FILE|URL", settings->choice.place,
          "run directory, checkpoint (RUN/step-000100), model directory "
          "(Hugging Face), name of a model in the Hugging Face cache, GGUF "
          "file, packaged model (tessera compile DIR --mode infer), or an "
          "OpenAI-compatible server (http://HOST:PORT; its key: "
          "TESSERA_API_KEY)")
      ->required();
  command
      ->add_option("--tasks", settings->tasks,
                   "YAML file of tasks and gates (docs/evaluating.md)")
      ->type_name("FILE")
      ->required();
  command
      ->add_option("-o,--output", settings->output,
                   "write the results as JSON to this file")
      ->type_name("FILE");
  command
      ->add_option("--samples", settings->samples,
                   "write each example with the model's output and its score "
                   "to this file, as lines of JSON")
      ->type_name("FILE");
  command
      ->add_option("--html", settings->html,
                   "write results, gates and samples as one page to this file")
      ->type_name("FILE");
  command
      ->add_option("--judge", settings->judge,
                   "OpenAI-compatible server that judges win_rate tasks "
                   "(default: the task's judge; its key: "
                   "TESSERA_JUDGE_API_KEY)")
      ->type_name("URL");
  addModelOptions(*command, *settings);
  command->add_flag("--quiet", settings->quiet, "print the results alone");
  command->callback([settings, &invocation] {
    if (Status status = evaluate(*settings, invocation); !status.ok())
      invocation.fail(status.message().c_str());
  });
}
