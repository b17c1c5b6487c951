#include "tools/tessera/RlPrograms.h"
#include "compiler/api/LocalTargets.h"
#include "compiler/api/RewardProgram.h"
#include "compiler/api/Shell.h"
#include "runtime/rl/AnswerScorer.h"
#include "runtime/rl/WorkerSampler.h"
#include <algorithm>
#include <cerrno>
#include <cstring>
#include <ctime>
#include <filesystem>
#include <sys/socket.h>
#include <unistd.h>

using namespace tessera;

static Status statusOf(llvm::Error error) {
  if (!error)
    return Status::success();
  return Status::error("{}", llvm::toString(std::move(error)));
}

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

Status tessera::compileLearner(const RlArguments &arguments,
                               const std::string &output) {
  return statusOf(compile(requestOf(arguments, output)).takeError());
}

StatusOr<std::unique_ptr<SessionModel>>
tessera::openProgram(const std::string &artifact, const std::string &device,
                     unsigned threads, std::vector<std::string> programs) {
  auto reader = ArtifactReader::open(artifact);
  if (!reader.ok())
    return reader.status();
  hal::SessionOptions session;
  session.device = device;
  session.deviceOptions.threads = threads;
  session.programs = std::move(programs);
  return SessionModel::open(*reader, session);
}

Status tessera::compileSampler(const RlArguments &arguments,
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
  // A key that excludes the learner's numerics comes before them.
  const bool canAgree = arguments.device == "cpu" &&
                        recipe.inference.kv == usual.kv &&
                        recipe.inference.quant == usual.quant &&
                        recipe.inference.page == usual.page;
  if (recipe.inference.numerics == usual.numerics && canAgree)
    sizes.push_back(
        fmt::format("inference.numerics={}", name(recipe::Numerics::Training)));
  request.set.insert(request.set.begin(), sizes.begin(), sizes.end());
  return statusOf(compile(request).takeError());
}

Status DecodingModel::open(const std::string &artifact,
                           const std::string &device, unsigned threads) {
  auto opened = openProgram(artifact, device, threads, {});
  if (!opened.ok())
    return opened.status();
  model = opened.take();
  auto created = DecodePrograms::create(model->get());
  if (!created.ok())
    return created.status();
  programs = created.take();
  return Status::success();
}

//===--- reward models ----------------------------------------------------===//

namespace {
/// Keeps the model that the scores come from.
class OwnedRewardModel final : public rl::Reward {
public:
  explicit OwnedRewardModel(std::unique_ptr<OpenedRewardModel> opened)
      : opened(std::move(opened)) {
    chat::ChatEncoderOptions encoding;
    encoding.rendering.now = std::time(nullptr);
    scores = rl::rewardModel(std::make_unique<rl::AnswerScorer>(
        *this->opened->programs, this->opened->format, encoding));
  }
  StatusOr<double> score(const rl::RewardQuestion &question) override {
    return scores->score(question);
  }

private:
  std::unique_ptr<OpenedRewardModel> opened;
  std::unique_ptr<rl::Reward> scores;
};
} // namespace

StatusOr<std::unique_ptr<rl::Reward>>
tessera::openModelReward(const RlArguments &arguments,
                         const recipe::Recipe &recipe) {
  const std::string place = arguments.reward.substr(kRewardModel.size());
  auto source = findModel(place);
  if (!source.ok())
    return source.status();
  if (!*source)
    return Status::error("--reward: '{}' is not a model directory: it has no "
                         "config.json",
                         place);
  ProgramOptions programs;
  if (!(*source)->packaged) {
    programs.decoder.batch = 1; // completions are scored one by one
    programs.set = {fmt::format(
        "inference.context={}",
        std::min(2 * recipe.batch.sequence, (*source)->spec.maxPositions))};
  }
  programs.decoder.device = arguments.device;
  programs.decoder.cache = arguments.cache;
  programs.decoder.cacheBytes = arguments.cacheGib << 30;
  programs.decoder.command = "score";
  programs.decoder.note = arguments.note;
  TemporaryFile program;
  TESSERA_RETURN_IF_ERROR(statusOf(program.create()));
  GenerateOptions options;
  options.program = program.name();
  options.device = arguments.device;
  options.threads = arguments.threads;
  auto opened = openRewardModel(**source, programs, options);
  if (!opened.ok())
    return Status::error("--reward: {}", opened.message());
  return std::unique_ptr<rl::Reward>(
      std::make_unique<OwnedRewardModel>(opened.take()));
}

//===--- rollout workers --------------------------------------------------===//

static StatusOr<rl::StartedWorker>
startWorker(const std::vector<std::string> &words) {
  int ends[2];
  if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0)
    return Status::error("cannot create a socket: {}", std::strerror(errno));
  comm::Socket ours(ends[0]), theirs(ends[1]);
  const ChildProcess::Descriptor descriptors[] = {
      {theirs.get(), kWorkerDescriptor}};
  auto process = ChildProcess::start(words, descriptors);
  if (!process.ok())
    return process.status();
  return rl::StartedWorker{std::make_unique<rl::Connection>(std::move(ours)),
                           process.take()};
}

StatusOr<std::unique_ptr<rl::Sampler>>
tessera::startWorkers(const RlArguments &arguments,
                      const std::string &artifact) {
  std::error_code error;
  const std::string self =
      std::filesystem::read_symlink("/proc/self/exe", error).string();
  // A file without a name is this process's by its descriptor.
  std::string path = artifact;
  constexpr std::string_view kOurs = "/proc/self/";
  if (path.starts_with(kOurs))
    path.replace(0, kOurs.size(), fmt::format("/proc/{}/", ::getpid()));
  std::vector<std::string> words = {self,
                                    "rollout-worker",
                                    path,
                                    "--device",
                                    arguments.device,
                                    "--threads",
                                    std::to_string(arguments.threads)};
  auto workers = rl::WorkerSampler::create(
      arguments.workers, [words] { return startWorker(words); },
      arguments.note);
  if (!workers.ok())
    return workers.status();
  return std::unique_ptr<rl::Sampler>(workers.take());
}
