// tessera rl: reinforcement learning of a model directory, with the engine and
// the learner in this process.
#include "compiler/api/LocalTargets.h"
#include "compiler/api/ModelSource.h"
#include "compiler/api/Shell.h"
#include "runtime/generate/ModelDirectory.h"
#include "runtime/infer/DecodePrograms.h"
#include "runtime/recipe/Recipe.h"
#include "runtime/rl/RolloutBatches.h"
#include "runtime/serve/ModelChat.h"
#include "runtime/support/ProcessMemory.h"
#include "runtime/support/StopSignals.h"
#include "runtime/train/Train.h"
#include "runtime/weights/ImportWeights.h"
#include "tools/tessera/CacheOptions.h"
#include "tools/tessera/Commands.h"
#include <CLI/CLI.hpp>
#include <algorithm>
#include <filesystem>
#include <memory>

using namespace tessera;

namespace {

struct RlArguments {
  std::string place, prompts, evalPrompts, reward, recipe;
  std::string cache = "on", device = "cpu";
  std::vector<std::string> set;
  unsigned threads = 0;
  uint64_t cacheGib = kCacheGib;
  TrainOptions train;
  std::function<void(std::string_view)> note; ///< for the user
};

/// A model directory as rollouts need it.
class RlTokenizer {
public:
  Status read(const ModelSource &source);
  rl::PromptEncoder promptEncoder();
  std::string decode(std::span<const int32_t> tokens) const;
  std::vector<int32_t> stopTokens() const;

private:
  StatusOr<std::vector<int32_t>> encodeText(std::string_view text);
  StatusOr<std::vector<int32_t>> encodeMessages(const JsonValue &messages);

  std::optional<tokenizer::Tokenizer> tokenizer;
  std::optional<tokenizer::Encoder> encoder;
  std::unique_ptr<serve::ChatRenderer> chat;
  std::vector<int32_t> ends;
};

} // namespace

static Status statusOf(llvm::Error error) {
  if (!error)
    return Status::success();
  return Status::error("{}", llvm::toString(std::move(error)));
}

//===--- tokenizer --------------------------------------------------------===//

Status RlTokenizer::read(const ModelSource &source) {
  auto opened = tokenizer::Tokenizer::of(source.files);
  if (!opened.ok())
    return opened.status();
  tokenizer.emplace(opened.take());
  encoder.emplace(*tokenizer);
  auto config = loadGenerationConfig(source.files);
  if (!config.ok())
    return config.status();
  auto ending = endTokensOf(source.files, *config);
  if (!ending.ok())
    return ending.status();
  ends = ending.take();
  if (auto end = tokenizer->documentEnd(); end && ends.empty())
    ends = {int32_t(*end)};
  std::string message; // of a model without a template
  auto loaded = serve::loadModelChat(source.files, *tokenizer, message);
  if (!loaded.ok())
    return loaded.status();
  if (message.empty())
    chat = loaded.take();
  return Status::success();
}

StatusOr<std::vector<int32_t>> RlTokenizer::encodeText(std::string_view text) {
  std::vector<int32_t> tokens(tokenizer->framePrefix().begin(),
                              tokenizer->framePrefix().end());
  for (uint32_t token : encoder->encode(text))
    tokens.push_back(int32_t(token));
  return tokens;
}

StatusOr<std::vector<int32_t>>
RlTokenizer::encodeMessages(const JsonValue &messages) {
  std::vector<serve::ChatMessage> list;
  for (const JsonValue &each : messages.elements()) {
    std::string_view role, content;
    if (!each["role"].get(role) || !each["content"].get(content))
      return Status::error("'messages' must be a list of objects with 'role' "
                           "and 'content', which are strings");
    list.push_back(
        {.role = std::string(role), .content = std::string(content)});
  }
  if (list.empty())
    return Status::error("'messages' must be a list of at least one message");
  return serve::chatTokens(*chat, list, {}, *tokenizer, *encoder);
}

rl::PromptEncoder RlTokenizer::promptEncoder() {
  rl::PromptEncoder result;
  result.text = [this](std::string_view text) { return encodeText(text); };
  if (chat)
    result.messages = [this](const JsonValue &messages) {
      return encodeMessages(messages);
    };
  return result;
}

std::string RlTokenizer::decode(std::span<const int32_t> tokens) const {
  const std::vector<uint32_t> ids(tokens.begin(), tokens.end());
  return tokenizer::decode(*tokenizer, ids, /*skipSpecial=*/true);
}

std::vector<int32_t> RlTokenizer::stopTokens() const {
  std::vector<int32_t> tokens = ends;
  std::vector<std::string> strings; // only tokens end a completion
  if (chat)
    serve::addChatStops(*chat, *tokenizer, tokens, strings);
  return tokens;
}

//===--- programs ---------------------------------------------------------===//

static CompileRequest requestOf(const RlArguments &arguments,
                                const std::string &output) {
  CompileRequest request;
  request.spec = arguments.place;
  request.recipe = arguments.recipe;
  request.set = arguments.set;
  request.targets = localTargets(arguments.device);
  request.emulate = arguments.device.starts_with("cuda-emu");
  request.executable = false;
  request.output = output;
  request.cache = arguments.cache;
  request.cacheBytes = arguments.cacheGib << 30;
  request.note = request.warning = arguments.note;
  request.rebuildCommand = "tessera rl " + shellQuoted(arguments.place);
  return request;
}

static StatusOr<std::unique_ptr<SessionModel>>
openProgram(const RlArguments &arguments, const std::string &path,
            std::vector<std::string> programs) {
  auto reader = ArtifactReader::open(path);
  if (!reader.ok())
    return reader.status();
  hal::SessionOptions session;
  session.device = arguments.device;
  session.deviceOptions.threads = arguments.threads;
  session.programs = std::move(programs);
  return SessionModel::open(*reader, session);
}

namespace {
/// A model by its prefill and decode programs.
struct DecodingModel {
  Status open(const RlArguments &arguments, const std::string &path) {
    auto opened = openProgram(arguments, path, {});
    if (!opened.ok())
      return opened.status();
    model = opened.take();
    auto created = DecodePrograms::create(model->get());
    if (!created.ok())
      return created.status();
    programs = created.take();
    return Status::success();
  }

  std::unique_ptr<SessionModel> model;
  std::unique_ptr<DecodePrograms> programs;
};
} // namespace

/// The programs of the model that samples. Unless the recipe says otherwise, as
/// many sequences at once as a step has, up to 64, and prompts are read in
/// chunks of about the longest.
static Status compileSampler(const RlArguments &arguments,
                             const recipe::Recipe &recipe, int64_t longest,
                             const std::string &output) {
  CompileRequest request = requestOf(arguments, output);
  request.infer = true;
  if (recipe.adapter.kind != recipe::AdapterKind::None) {
    // Its weights have the adapter in them.
    const recipe::Recipe::Adapter none;
    request.set.insert(
        request.set.end(),
        {"adapter.kind=none", "adapter.base=auto",
         fmt::format("adapter.rank={}", none.rank),
         fmt::format("adapter.alpha={}", none.alpha),
         fmt::format("adapter.target=[{}]", fmt::join(none.target, ", "))});
  }
  constexpr int64_t kChunkStep = 16;
  const recipe::Recipe::Inference usual;
  std::vector<std::string> sizes; // before the user's, which may override them
  if (recipe.inference.batch == usual.batch)
    sizes.push_back(fmt::format(
        "inference.batch={}",
        std::min<int64_t>(recipe.rollout.prompts * recipe.rollout.group, 64)));
  if (recipe.inference.chunk == usual.chunk)
    sizes.push_back(
        fmt::format("inference.chunk={}",
                    std::min(usual.chunk, (longest + kChunkStep - 1) /
                                              kChunkStep * kChunkStep)));
  if (recipe.inference.context == usual.context)
    sizes.push_back(fmt::format("inference.context={}", recipe.batch.sequence));
  if (recipe.inference.numerics == usual.numerics)
    sizes.push_back(
        fmt::format("inference.numerics={}", name(recipe::Numerics::Training)));
  request.set.insert(request.set.begin(), sizes.begin(), sizes.end());
  return statusOf(compile(request).takeError());
}

//===--- the run ----------------------------------------------------------===//

static Status checkRecipe(const recipe::Recipe &recipe) {
  if (recipe.task != recipe::Task::Policy)
    return Status::error("task: {}; tessera rl learns by task: policy",
                         name(recipe.task));
  if (recipe.data.train || recipe.data.eval)
    return Status::error("data.train and data.eval: tessera rl learns from "
                         "--prompts; leave them out");
  if (recipe.rollout.maxTokens >= recipe.batch.sequence)
    return Status::error("rollout.max_tokens = {} leaves no room for a prompt "
                         "in batch.sequence = {}",
                         recipe.rollout.maxTokens, recipe.batch.sequence);
  return Status::success();
}

/// A run without checkpoints, also one that resumes, begins with the weights of
/// the model directory.
static Status chooseWeights(const std::string &place, TrainOptions &options) {
  namespace fs = std::filesystem;
  if (fs::exists(options.out + "/config.json"))
    return Status::error("'{}' is a model directory; choose another --out for "
                         "the run",
                         options.out);
  if (options.initFrom.empty() && !fs::exists(place + "/model.safetensors") &&
      !fs::exists(place + "/model.safetensors.index.json"))
    return Status::error("'{}' has no weights; write a trained model with: "
                         "tessera export RUN -o DIR, or name weights with "
                         "--init-from",
                         place);
  auto present = listCheckpoints(options.out);
  if (!present.ok())
    return present.status();
  if (present->empty() && options.initFrom.empty())
    options.initFrom = place;
  const std::string journal = options.out + "/" + rl::kJournalFile;
  if (!options.resume && present->empty() && fs::exists(journal))
    return Status::error("'{}' is there already; continue its run with "
                         "--resume, or choose another --out",
                         journal);
  if (!options.resume && !present->empty())
    return Status::error("'{}' already holds {}; continue it with --resume or "
                         "choose another --out",
                         options.out, present->front());
  return Status::success();
}

static std::optional<rl::AdapterScale> adapterOf(const recipe::Recipe &recipe,
                                                 const ModelSource &source) {
  const recipe::Recipe::Adapter &adapter = recipe.adapter;
  if (adapter.kind == recipe::AdapterKind::None)
    return std::nullopt;
  return rl::AdapterScale{adapter.alpha / double(adapter.rank),
                          source.spec.family == models::Family::Gpt2};
}

static Status learn(RlArguments &arguments, const recipe::Recipe &recipe,
                    RlTokenizer &tokenizer, const ModelSource &source,
                    const std::vector<rl::Prompt> &prompts,
                    const std::vector<rl::Prompt> &evalPrompts) {
  int64_t longest = 0;
  for (const auto *each : {&prompts, &evalPrompts})
    for (const rl::Prompt &prompt : *each)
      longest = std::max(longest, int64_t(prompt.tokens.size()));
  TESSERA_RETURN_IF_ERROR(rl::checkBatch(recipe, longest));
  TemporaryFile trainer, sampler;
  TESSERA_RETURN_IF_ERROR(statusOf(trainer.create()));
  TESSERA_RETURN_IF_ERROR(statusOf(sampler.create()));
  TESSERA_RETURN_IF_ERROR(
      statusOf(compile(requestOf(arguments, trainer.name())).takeError()));
  TESSERA_RETURN_IF_ERROR(
      compileSampler(arguments, recipe, longest, sampler.name()));
  auto learner = openProgram(arguments, trainer.name(), {"init", "train_step"});
  if (!learner.ok())
    return learner.status();
  DecodingModel model, reference;
  TESSERA_RETURN_IF_ERROR(model.open(arguments, sampler.name()));
  TESSERA_RETURN_IF_ERROR(
      rl::checkContext(recipe, longest, model.programs->shape().context));
  if (recipe.policy.kl.beta > 0) {
    TESSERA_RETURN_IF_ERROR(reference.open(arguments, sampler.name()));
    TESSERA_RETURN_IF_ERROR(
        importAllWeights(arguments.place, *reference.model));
  }

  auto reward =
      rl::rewardProgram(arguments.reward, recipe.rollout.rewardTimeout);
  rl::RolloutOptions rollouts;
  rollouts.settings = recipe.rollout;
  rollouts.seed = uint64_t(recipe.seed);
  rollouts.lastStep =
      arguments.train.steps.value_or(uint64_t(recipe.schedule.total));
  rollouts.stopTokens = tokenizer.stopTokens();
  rollouts.decode = [&](std::span<const int32_t> tokens) {
    return tokenizer.decode(tokens);
  };
  rollouts.note = arguments.note;
  TrainOptions &options = arguments.train;
  rl::RolloutBatches batches(
      *model.model, *model.programs, reference.programs.get(), prompts, *reward,
      rollouts,
      {options.out, source.files.place() + "/" + kTokenizerFile,
       source.files.place(), recipe.policy.documents, adapterOf(recipe, source),
       evalPrompts, uint64_t(recipe.eval.every)});
  options.source = &batches;
  options.program = trainer.name();
  options.threads = arguments.threads;
  return runTraining(**learner, options).status();
}

static Status runRl(RlArguments &arguments) {
  TESSERA_RETURN_IF_ERROR(catchStopSignals());
  arguments.note = [quiet = arguments.train.quiet](std::string_view line) {
    if (!quiet)
      fmt::print(stderr, "tessera: {}\n", line);
  };
  if (auto memory = readProcessMemory(); memory.ok())
    arguments.train.baseBytes = memory->residentBytes;
  auto source = findModel(arguments.place);
  if (!source.ok())
    return source.status();
  if (!*source || (*source)->packaged)
    return Status::error("'{}' is not a model directory with config.json; "
                         "write one of a run with: tessera export RUN -o DIR",
                         arguments.place);
  arguments.place = (*source)->files.place();
  if (arguments.recipe.empty())
    arguments.set.insert(arguments.set.begin(),
                         {"task=policy", "data.documents=separate"});
  auto recipe = recipe::loadRecipe(arguments.recipe, arguments.set);
  if (!recipe.ok())
    return recipe.status();
  TESSERA_RETURN_IF_ERROR(checkRecipe(*recipe));
  TESSERA_RETURN_IF_ERROR(hal::checkDevice(arguments.device));
  TESSERA_RETURN_IF_ERROR(chooseWeights(arguments.place, arguments.train));
  RlTokenizer tokenizer;
  TESSERA_RETURN_IF_ERROR(tokenizer.read(**source));
  const int64_t room = recipe->batch.sequence - recipe->rollout.maxTokens;
  auto prompts =
      rl::readPrompts(arguments.prompts, tokenizer.promptEncoder(), room);
  if (!prompts.ok())
    return prompts.status();
  std::vector<rl::Prompt> evalPrompts;
  if (!arguments.evalPrompts.empty()) {
    auto read =
        rl::readPrompts(arguments.evalPrompts, tokenizer.promptEncoder(), room);
    if (!read.ok())
      return read.status();
    evalPrompts = read.take();
  }
  return learn(arguments, *recipe, tokenizer, **source, *prompts, evalPrompts);
}

static void addRunOptions(CLI::App &command, TrainOptions &options) {
  command.add_option("--out", options.out, "run directory")
      ->type_name("DIR")
      ->capture_default_str();
  command
      .add_option("--steps", options.steps,
                  "last step, counted from the run's beginning (default: the "
                  "recipe's lr_schedule.total)")
      ->check(CLI::Range(0, 1 << 24));
  command.add_flag("--resume", options.resume,
                   "continue from the newest intact checkpoint in --out, with "
                   "the completions that its journal has");
  command
      .add_option("--init-from", options.initFrom,
                  "Hugging Face safetensors to start from (default: DIR)")
      ->type_name("DIR");
  command
      .add_option("--log-every", options.logEvery,
                  "steps between progress lines when standard error is not a "
                  "terminal")
      ->check(CLI::Range(1, 1 << 30))
      ->capture_default_str();
  command.add_flag("--json", options.json,
                   "print every metrics record on standard output");
  command.add_flag("--dump-metrics", options.dumpMetrics,
                   "print loss, gradient norm and rate of every step as "
                   "hexadecimal floats on standard output");
  command.add_flag("--quiet", options.quiet, "print only errors");
}

void tessera::addRlCommand(CLI::App &app, Invocation &invocation) {
  auto arguments = std::make_shared<RlArguments>();
  CLI::App *command = app.add_subcommand(
      "rl", "Train a model by reinforcement learning: it completes prompts, a "
            "program of yours rewards the completions, and a policy gradient "
            "(GRPO and its kin) learns from them");
  command
      ->add_option("DIR", arguments->place,
                   "Hugging Face directory with config.json, weights and "
                   "tokenizer.json")
      ->required();
  command
      ->add_option("--recipe", arguments->recipe,
                   "recipe.yaml with task: policy (default: GRPO)")
      ->type_name("FILE.yaml");
  command
      ->add_option("--set", arguments->set,
                   "change a key of the recipe: --set rollout.group=16; "
                   "repeatable")
      ->type_name("KEY=VALUE")
      ->allow_extra_args(false);
  command
      ->add_option("--prompts", arguments->prompts,
                   "lines of JSON with 'prompt', a text, or 'messages'; other "
                   "members are for the reward")
      ->required()
      ->type_name("FILE.jsonl");
  command
      ->add_option("--eval-prompts", arguments->evalPrompts,
                   "held-out prompts: the mean reward of their greedy "
                   "completions is measured every eval.every steps")
      ->type_name("FILE.jsonl");
  command
      ->add_option("--reward", arguments->reward,
                   "shell command of a program that reads a line of JSON for "
                   "each completion and answers it with a number")
      ->required()
      ->type_name("COMMAND");
  addRunOptions(*command, arguments->train);
  addCacheOptions(*command, arguments->cache, arguments->cacheGib);
  command
      ->add_option("--device", arguments->device,
                   "device to run on: cpu, cuda:0, cuda-emu")
      ->type_name("NAME")
      ->envname("TESSERA_DEVICE")
      ->capture_default_str();
  command->add_option("--threads", arguments->threads, "0: all processors")
      ->envname("TESSERA_THREADS")
      ->capture_default_str();
  command->callback([arguments, &invocation] {
    if (Status status = runRl(*arguments); !status.ok())
      invocation.fail(status.message().c_str());
  });
}
