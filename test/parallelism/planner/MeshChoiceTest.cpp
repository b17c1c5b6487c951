// Meshes that nobody named.
#include "parallelism/planner/MeshChoice.h"
#include "models/HfConfig.h"
#include <algorithm>
#include <array>
#include <gtest/gtest.h>
#include <map>
#include <set>

namespace tessera::planner {
namespace {

constexpr double GB = 1e9;

models::ModelSpec specNamed(const std::string &name) {
  return models::loadHfConfig(TESSERA_SOURCE_DIR "/models/specs/" + name)->spec;
}

MeshQuestion questionOf(const std::string &model, int64_t world,
                        std::initializer_list<std::string> sets = {},
                        double memory = 64 * GB) {
  MeshQuestion question;
  question.model = shapeOf(specNamed(model));
  const std::vector<std::string> overrides(sets);
  question.recipe = *recipe::parseRecipe("", "defaults", overrides);
  question.cluster = hostCluster(world, memory);
  question.libraryBytes = hostLibraryBytes;
  return question;
}

std::map<std::string, int64_t> axesIn(const std::string &mesh) {
  std::map<std::string, int64_t> axes;
  for (size_t at = 0; at < mesh.size();) {
    const size_t end = std::min(mesh.find(',', at), mesh.size());
    const std::string part = mesh.substr(at, end - at);
    const size_t equals = part.find('=');
    if (part.substr(0, equals) != "schedule")
      axes[part.substr(0, equals)] = std::stoll(part.substr(equals + 1));
    at = end + 1;
  }
  return axes;
}

int64_t devicesOf(const std::string &mesh) {
  int64_t devices = 1;
  for (const auto &[axis, size] : axesIn(mesh))
    if (axis != "zero" && axis != "chunks")
      devices *= size;
  return devices;
}

// Two readers of a config.json agree about what there is to compute.
TEST(MeshChoiceTest, ShapesOfSpecsAreThoseOfThePlanner) {
  for (const char *name :
       {"gpt2-124m", "llama-3-8b", "mistral-7b", "qwen3-0.6b", "mixtral-8x7b",
        "qwen2-57b-a14b", "qwen3-30b-a3b"}) {
    const ModelShape ours = shapeOf(specNamed(name));
    const ModelShape theirs = *loadModelShape(
        TESSERA_SOURCE_DIR "/models/specs/" + std::string(name));
    EXPECT_EQ(ours.parameters(), theirs.parameters()) << name;
    EXPECT_EQ(ours.activeParameters(), theirs.activeParameters()) << name;
    EXPECT_EQ(ours.flopsPerToken(4096), theirs.flopsPerToken(4096)) << name;
  }
}

TEST(MeshChoiceTest, MeshesHaveTheWorldAndTheChosenIsNearTheFastest) {
  for (const char *model : {"tiny-gpt2", "tiny-mixtral", "llama-15m"})
    for (const int64_t world : {1, 2, 4, 8, 16}) {
      const auto choice = chooseMesh(
          questionOf(model, world, {"batch.micro=8", "batch.accumulate=4"}));
      ASSERT_TRUE(choice.ok()) << choice.message();
      EXPECT_EQ(devicesOf(choice->chosen.mesh), world) << choice->chosen.mesh;
      const double own = choice->chosen.candidate.cost.total;
      for (const MeshCandidate &other : choice->others) {
        EXPECT_EQ(devicesOf(other.mesh), world) << other.mesh;
        EXPECT_LE(own, 1.02 * other.candidate.cost.total) << other.mesh;
      }
    }
}

TEST(MeshChoiceTest, IsTheSameEveryTime) {
  const MeshQuestion question =
      questionOf("tiny-mixtral", 8, {"batch.accumulate=8"});
  const auto once = chooseMesh(question), again = chooseMesh(question);
  ASSERT_TRUE(once.ok() && again.ok());
  EXPECT_EQ(printChoice(question, *once, GB),
            printChoice(question, *again, GB));
}

// Sequences of a microbatch are what is cheapest to part; with one of them
// something else has to be cut.
TEST(MeshChoiceTest, PartsWhatTheBatchHas) {
  const auto many = chooseMesh(questionOf("llama-110m", 4, {"batch.micro=4"}));
  ASSERT_TRUE(many.ok()) << many.message();
  EXPECT_EQ(axesIn(many->chosen.mesh).count("data"), 1U) << many->chosen.mesh;
  const auto one = chooseMesh(questionOf("llama-110m", 4, {"batch.micro=1"}));
  ASSERT_TRUE(one.ok()) << one.message();
  EXPECT_EQ(axesIn(one->chosen.mesh).count("data"), 0U) << one->chosen.mesh;
}

TEST(MeshChoiceTest, EveryKindOfAxisIsThere) {
  std::map<std::string, int64_t> found;
  for (const char *model : {"llama-110m", "tiny-mixtral"})
    for (const char *micro : {"batch.micro=1", "batch.micro=8"})
      for (const char *accumulate :
           {"batch.accumulate=1", "batch.accumulate=16"})
        for (const char *sequence : {"batch.sequence=64", "batch.sequence=256"})
          for (const int64_t world : {2, 4, 8}) {
            const auto choice = chooseMesh(
                questionOf(model, world, {micro, accumulate, sequence}));
            if (!choice.ok())
              continue;
            found.merge(axesIn(choice->chosen.mesh));
            for (const MeshCandidate &other : choice->others)
              found.merge(axesIn(other.mesh));
          }
  for (const char *axis :
       {"data", "tensor", "pipe", "context", "expert", "zero"})
    EXPECT_EQ(found.count(axis), 1U) << axis;
}

// State that does not fit whole is cut, though that is slower.
TEST(MeshChoiceTest, FitsIntoTheMemory) {
  MeshQuestion question = questionOf("llama-1b", 8, {"batch.micro=8"});
  const auto roomy = chooseMesh(question);
  ASSERT_TRUE(roomy.ok()) << roomy.message();
  question.cluster.gpu.memory = 3 * GB;
  ASSERT_GT(roomy->chosen.candidate.memory.total(),
            usableMemory(question.cluster.gpu));
  const auto tight = chooseMesh(question);
  ASSERT_TRUE(tight.ok()) << tight.message();
  EXPECT_LE(tight->chosen.candidate.memory.total(),
            usableMemory(question.cluster.gpu));
  ASSERT_TRUE(tight->tooLarge);
  EXPECT_LE(tight->tooLarge->candidate.cost.total,
            tight->chosen.candidate.cost.total);
  question.cluster.gpu.memory = 1 * GB;
  // The model may be wrong, so the smallest is worth compiling, but only once.
  const auto least = chooseMesh(question);
  ASSERT_TRUE(least.ok()) << least.message();
  EXPECT_FALSE(least->fits);
  EXPECT_EQ(least->chosen.mesh, least->smallest.mesh);
  const auto none = chooseMesh(question, std::array{least->chosen.mesh});
  ASSERT_FALSE(none.ok());
  EXPECT_NE(none.message().find("no mesh fits"), std::string::npos)
      << none.message();
}

MeshQuestion onFourNodes(double between) {
  MeshQuestion question =
      questionOf("mistral-7b", 32,
                 {"batch.micro=32", "batch.accumulate=8", "batch.sequence=8192",
                  "precision.compute=bf16", "recompute=full"});
  question.cluster = *loadCluster(TESSERA_SOURCE_DIR
                                  "/hardware/clusters/dgx-a100-80g-32x8.yaml");
  question.cluster.nodes = 4;
  question.cluster.gpu.memory = 24 * GB;
  question.cluster.links = {{"inside", 8, 240e9, "", 1, 4e-6},
                            {"between", 0, between, "", 1, 10e-6}};
  question.libraryBytes = Workload().libraryBytes;
  return question;
}

// Weights are gathered in every microbatch: over slow links it is worth having
// all state in each node.
TEST(MeshChoiceTest, ReplicasWhereLinksBetweenNodesAreSlow) {
  const auto slow = chooseMesh(onFourNodes(3e9)),
             fast = chooseMesh(onFourNodes(100e9));
  ASSERT_TRUE(slow.ok() && fast.ok());
  EXPECT_EQ(slow->chosen.mesh, "replicate=4,data=8,zero=3");
  EXPECT_EQ(axesIn(fast->chosen.mesh).count("replicate"), 0U)
      << fast->chosen.mesh;
  // Replicas of two nodes are candidates, too.
  const auto groups = meshesByAxes(onFourNodes(3e9));
  ASSERT_TRUE(groups.ok());
  EXPECT_TRUE(std::ranges::any_of(*groups, [](const auto &group) {
    return std::ranges::any_of(group, [](const MeshCandidate &each) {
      return each.mesh == "replicate=2,data=16,zero=3";
    });
  }));
}

// What was refused is not chosen again.
TEST(MeshChoiceTest, TakesTheNext) {
  const MeshQuestion question = questionOf("llama-1b", 8, {"batch.micro=8"});
  std::vector<std::string> refused;
  for (int i = 0; i < 5; ++i) {
    const auto next = chooseMesh(question, refused);
    ASSERT_TRUE(next.ok()) << next.message();
    EXPECT_EQ(std::ranges::count(refused, next->chosen.mesh), 0);
    refused.push_back(next->chosen.mesh);
  }
}

TEST(MeshChoiceTest, AwkwardWorlds) {
  // Eight sequences on seven ranks: one of them has two, so all wait.
  const auto uneven = chooseMesh(questionOf("tiny-gpt2", 7, {"batch.micro=8"}));
  ASSERT_TRUE(uneven.ok()) << uneven.message();
  EXPECT_EQ(axesIn(uneven->chosen.mesh).at("data"), 7);
  const auto none = chooseMesh(questionOf("tiny-gpt2", 7, {"batch.micro=4"}));
  ASSERT_FALSE(none.ok());
  EXPECT_NE(none.message().find("no mesh of that size"), std::string::npos)
      << none.message();
  EXPECT_EQ(none.message().find('\n'), std::string::npos);
}

// Elements of four bytes take twice as much of a link and of memory.
TEST(MeshChoiceTest, WidthOfElements) {
  const ModelShape model = shapeOf(specNamed("llama-110m"));
  const Cluster cluster = hostCluster(4, 64 * GB);
  ParallelPlan plan;
  plan.tensor = 2;
  plan.zero = 0;
  Workload narrow;
  narrow.sequence = 256;
  narrow.globalBatch = 4;
  Workload wide = narrow;
  wide.elementBytes = 4;
  const Memory two = peakMemory(model, narrow, plan, {12, 12}),
               four = peakMemory(model, wide, plan, {12, 12});
  EXPECT_EQ(four.weights, 2 * two.weights);
  EXPECT_EQ(four.activations, 2 * two.activations);
  EXPECT_EQ(four.buffers, 2 * two.buffers);
  EXPECT_EQ(four.optimizer, two.optimizer);
  const LayerCost half = LayerPricer(model, cluster, narrow).layer(plan, false),
                  whole = LayerPricer(model, cluster, wide).layer(plan, false);
  const double latency = cluster.links.front().latency;
  EXPECT_NEAR(whole.tensor.forward - 4 * latency,
              2 * (half.tensor.forward - 4 * latency), 1e-9);
}

// What a pipeline of the compiler refuses.
TEST(MeshChoiceTest, NoPipelineWithoutMicrobatches) {
  const auto choice = chooseMesh(
      questionOf("tiny-mixtral", 2, {"batch.accumulate=1", "batch.micro=1"}));
  ASSERT_TRUE(choice.ok()) << choice.message();
  EXPECT_EQ(axesIn(choice->chosen.mesh).count("pipe"), 0U);
  for (const MeshCandidate &other : choice->others)
    EXPECT_EQ(axesIn(other.mesh).count("pipe"), 0U) << other.mesh;
}

// Every mesh goes through the blocks once more, a pipeline fills once more.
TEST(MeshChoiceTest, CountingCostsAForward) {
  auto costOf = [](const char *balance, const char *axis) -> double {
    const auto choice = chooseMesh(questionOf(
        "tiny-mixtral", 2, {"batch.accumulate=4", "batch.micro=1", balance}));
    EXPECT_TRUE(choice.ok()) << choice.message();
    std::vector<MeshCandidate> all = choice->others;
    all.push_back(choice->chosen);
    for (const MeshCandidate &each : all)
      if (axesIn(each.mesh).count(axis))
        return each.candidate.cost.total;
    ADD_FAILURE() << "no mesh with " << axis;
    return 0;
  };
  for (const char *axis : {"pipe", "tensor"}) {
    const double once = costOf("moe.balance=sequence", axis),
                 counted = costOf("moe.balance=global", axis);
    EXPECT_GT(counted, 1.1 * once) << axis;
    EXPECT_LT(counted, 1.5 * once) << axis;
  }
}

// Each group has the schedules and ZeRO stages of one choice of axes.
TEST(MeshChoiceTest, MeshesComeByAxes) {
  const auto groups = meshesByAxes(
      questionOf("tiny-gpt2", 4, {"batch.micro=8", "batch.accumulate=4"}));
  ASSERT_TRUE(groups.ok()) << groups.message();
  auto axes = [](const MeshCandidate &each) {
    auto named = axesIn(each.mesh);
    named.erase("zero");
    named.erase("chunks");
    return named;
  };
  auto seconds = [](const MeshCandidate &each) {
    return each.candidate.cost.total;
  };
  std::set<std::map<std::string, int64_t>> different;
  double before = 0;
  bool hasVariants = false;
  for (const auto &group : *groups) {
    ASSERT_FALSE(group.empty());
    hasVariants |= group.size() > 1;
    EXPECT_TRUE(different.insert(axes(group.front())).second);
    EXPECT_GE(seconds(group.front()), before);
    before = seconds(group.front());
    EXPECT_TRUE(std::ranges::is_sorted(group, {}, seconds));
    for (const MeshCandidate &each : group)
      EXPECT_EQ(axes(each), axes(group.front())) << each.mesh;
  }
  EXPECT_TRUE(hasVariants);
}

} // namespace
} // namespace tessera::planner
