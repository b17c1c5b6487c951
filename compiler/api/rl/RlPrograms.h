// The two programs of `tessera rl`.
#pragma once
#include "compiler/Driver.h"
#include "runtime/generate/InferenceRanks.h"
#include "runtime/hal/Mesh.h"
#include "runtime/infer/DecodePrograms.h"
#include "runtime/recipe/Recipe.h"
#include "runtime/rl/PromptFile.h"
#include "runtime/rl/Reward.h"
#include "runtime/train/SessionModel.h"
#include "runtime/train/Train.h"

#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace tessera {

/// What `tessera rl` was called with.
struct RlArguments {
  std::string place, prompts, evalPrompts, reward, recipe;
  std::string config; ///< config.json itself; `place` then only names it
  std::string listen, secretFile; ///< for workers on other machines
  std::string cache = "on", device = "cpu";
  std::vector<std::string> set;
  unsigned threads = 0; ///< processors; 0: all
  int workers = 0;      ///< processes of this machine that sample
  uint64_t cacheBytes = CompileRequest::kMostCacheBytes;
  std::string mesh; ///< of the learner, "data=2"; empty: one process
  TrainOptions train;
  std::function<void(std::string_view)> note; ///< for the user
};

/// Threads of one program of this process.
struct ProgramThreads {
  unsigned count = 1;
  hal::SharedProcessors processors;
};

/// Threads of the programs.
struct RlThreads {
  ProgramThreads learner, sampler, reference;
  unsigned ofWorker = 1; ///< of each process that samples
};
/// On CPUs, while rollouts overlap steps, each has half of the processors; the
/// programs of this process have all while the others wait. Ranks of a machine
/// (`ranks`, or null) share its processors; where all others wait for rank 0 to
/// sample, it has all.
RlThreads threadsOf(const RlArguments &arguments, const recipe::Recipe &recipe,
                    const InferenceRanks *ranks);

/// Compiles the program that learns.
Status compileLearner(const RlArguments &arguments, const std::string &output);
/// Compiles the model that samples. Unless the recipe says otherwise, it has as
/// many sequences at once as a step, up to 64, and reads prompts in chunks of
/// about `longest` tokens, the longest prompt.
Status compileSampler(const RlArguments &arguments,
                      const recipe::Recipe &recipe, int64_t longest,
                      const std::string &output);

StatusOr<std::unique_ptr<SessionModel>>
openProgram(const std::string &artifact, const std::string &device,
            const ProgramThreads &threads, std::vector<std::string> programs,
            const hal::MeshContext &mesh = {});

/// A model by its prefill and decode programs.
struct DecodingModel {
  Status open(const std::string &artifact, const std::string &device,
              const ProgramThreads &threads);

  std::unique_ptr<SessionModel> model;
  std::unique_ptr<DecodePrograms> programs;
};

/// What --reward begins with if it is a reward model's directory.
inline constexpr std::string_view kRewardModel = "model:";
/// The reward model of --reward, compiled and with its weights. It takes twice
/// the tokens of the recipe's sequences, since its tokenizer and template may
/// be others, or as many as it has positions. An error if it cannot read a
/// prompt.
StatusOr<std::unique_ptr<rl::Reward>>
openModelReward(const RlArguments &arguments, const recipe::Recipe &recipe,
                std::span<const rl::Prompt> prompts,
                std::span<const rl::Prompt> evalPrompts);

} // namespace tessera
