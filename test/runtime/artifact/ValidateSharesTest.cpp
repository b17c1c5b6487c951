// One hostile artifact for each proof of Validate.h about meshes, shares and
// what ranks do together.
#include "test/runtime/artifact/HostileArtifact.h"
#include "test/runtime/artifact/MeshArtifact.h"

using namespace tessera;
using namespace tessera::test;

namespace {

ProgramT &program(ArtifactT &artifact, int share = 0) {
  return *artifact.shares[share]->devices[0]->programs[0];
}
/// In the order of meshShare.
enum { kGather, kReduce, kScatter, kAllToAll, kPermute, kStarted };
CollectiveT &together(ArtifactT &artifact, int index) {
  return *program(artifact).steps[index]->step.AsCollective();
}
/// The exchange of equal pieces as one of two rows of four that are counted.
CollectiveT &exchangeRows(ArtifactT &artifact) {
  CollectiveT &one = together(artifact, kAllToAll);
  one.kind = CollectiveKind::exchange_rows;
  one.counts.clear();
  one.rows = std::make_unique<ArgT>(arg(Space::arena, 0, 24));
  one.width = 4;
  return one;
}
TensorT &weight(ArtifactT &artifact, int share = 0) {
  return *artifact.shares[share]->state[0];
}
CutT &rowCut(ArtifactT &artifact) {
  return *weight(artifact).cuts[0]->factors[0];
}

const Hostile kHostile[] = {
    {"NoShares", [](ArtifactT &a) { a.shares.clear(); },
     "rank 0 is in no share"},
    {"RankMissing", [](ArtifactT &a) { a.shares.pop_back(); },
     "rank 2 is in no share"},
    {"RankTwice", [](ArtifactT &a) { a.shares[1]->ranks = {1, 2}; },
     "rank 1 stands twice, or out of order"},
    {"RanksUnordered", [](ArtifactT &a) { a.shares[0]->ranks = {1, 0}; },
     "rank 0 stands twice, or out of order"},
    {"RankBeyond", [](ArtifactT &a) { a.shares[1]->ranks = {3}; },
     "a share of rank 3 of 3"},
    {"ShareOfNobody",
     [](ArtifactT &a) { a.shares.push_back(std::make_unique<ShareT>()); },
     "a share of no rank"},
    {"RanksWithoutMesh", [](ArtifactT &a) { a.mesh.clear(); },
     "a share of rank 1 of 1"},
    {"AxisEmpty", [](ArtifactT &a) { a.mesh[0]->size = 0; },
     "a mesh of 0 ranks or more"},
    {"AxisHuge", [](ArtifactT &a) { a.mesh[0]->size = ~0u; },
     "a mesh of 4294967295 ranks or more: 1 to 1048576 are possible"},
    {"MeshOverflows",
     [](ArtifactT &a) {
       a.mesh.clear();
       for (const char *name : {"a", "b", "c", "d"})
         a.mesh.push_back(
             std::make_unique<MeshAxisT>(meshAxis(name, 1u << 16)));
     },
     "a mesh of 4294967296 ranks or more"},
    {"AxisName", [](ArtifactT &a) { a.mesh[0]->name = "da ta"; },
     "an axis's name is empty, too long or not plain ASCII"},
    {"AxisTwice",
     [](ArtifactT &a) {
       a.mesh.push_back(std::make_unique<MeshAxisT>(meshAxis("data", 1)));
     },
     "mesh axis 'data' is listed twice"},
    {"Axes",
     [](ArtifactT &a) {
       for (int i = 0; i < 16; ++i)
         a.mesh.push_back(
             std::make_unique<MeshAxisT>(meshAxis("x" + std::to_string(i), 1)));
     },
     "a mesh of 17 axes exceeds 16"},

    {"CutsOfOtherRank", [](ArtifactT &a) { weight(a).cuts.pop_back(); },
     "state tensor 'w': cut in 1 dimensions of 2"},
    {"CutAxis", [](ArtifactT &a) { rowCut(a).axes = {1}; },
     "axis 1, but the mesh has 1"},
    {"CutAxisTwice", [](ArtifactT &a) { rowCut(a).axes = {0, 0}; },
     "axis 0 twice"},
    {"CutAxisTwiceInTensor",
     [](ArtifactT &a) { weight(a).cuts[1]->factors[0]->axes = {0}; },
     "cut along axis 0 twice"},
    {"CutToOtherSize", [](ArtifactT &a) { rowCut(a).size = 12; },
     "share of rank 0: state tensor 'w': dimension 0 is cut to 4, but its "
     "shape says 3"},
    {"CutUneven", [](ArtifactT &a) { rowCut(a).size = 7; },
     "of 7 elements rank 1 has not as many as rank 0, with whom it shares"},
    {"CutHuge",
     [](ArtifactT &a) { weight(a).cuts[1]->factors[0]->size = kHuge; },
     "a share of more than"},
    {"CutOverflowsBehindNothing",
     [](ArtifactT &a) {
       auto &factors = weight(a).cuts[1]->factors;
       factors = owned<CutT>({cut(kHuge), cut(kHuge)});
       rowCut(a).size = 0;
       weight(a).shape[0] = 0;
       weight(a).bytes = 0;
     },
     "a share of more than"},
    {"StateWithGaps", [](ArtifactT &a) { weight(a, 1).name = "v"; },
     "of the state tensor 'v' ranks have 8 of 32 elements"},
    {"CutsDiffer",
     [](ArtifactT &a) {
       weight(a, 1).cuts[0]->factors = owned<CutT>({cut(6, {0})});
     },
     "share of rank 2: its state tensor 'w' is not that of rank 0"},
    {"ProgramsDiffer", [](ArtifactT &a) { program(a, 1).name = "other"; },
     "its programs, or their inputs and outputs, are not those of rank 0"},
    {"InputsDiffer",
     [](ArtifactT &a) { program(a, 1).inputs[0]->name = "other"; },
     "its programs, or their inputs and outputs, are not those of rank 0"},
    {"DevicesDiffer",
     [](ArtifactT &a) { a.shares[1]->devices[0]->device = "other"; },
     "its devices or their programs are not those of rank 0"},
    {"OffsetAxis", [](ArtifactT &a) { share(a).offsets[0]->axes = {5}; },
     "axis 5, but the mesh has 1"},
    {"OffsetHuge", [](ArtifactT &a) { share(a).offsets[0]->size = kHuge; },
     "is no i32"},
    {"OffsetsMore",
     [](ArtifactT &a) {
       share(a).offsets.push_back(std::make_unique<CutT>(cut(4)));
     },
     "input 'mesh.offsets' of i32 has 4 bytes for 2 factors"},
    {"OffsetsOfNothing", [](ArtifactT &a) { share(a).offsets.clear(); },
     "input 'mesh.offsets' of i32 has 4 bytes for 0 factors"},

    {"Kind",
     [](ArtifactT &a) {
       together(a, kReduce).kind = static_cast<CollectiveKind>(9);
     },
     "unknown kind 9, reduction 0 or type 0"},
    {"ReductionKind",
     [](ArtifactT &a) {
       together(a, kReduce).reduction = static_cast<Reduction>(9);
     },
     "unknown kind 0, reduction 9"},
    {"Type",
     [](ArtifactT &a) {
       together(a, kReduce).type = static_cast<ElementType>(99);
     },
     "type 99"},
    {"OverNoAxis", [](ArtifactT &a) { together(a, kReduce).axes.clear(); },
     "step 1 (test.together): all_reduce: over no axis"},
    {"OverOtherAxis", [](ArtifactT &a) { together(a, kReduce).axes = {1}; },
     "all_reduce: axis 1, but the mesh has 1"},
    {"OverAxisTwice", [](ArtifactT &a) { together(a, kReduce).axes = {0, 0}; },
     "all_reduce: axis 0 twice"},
    {"ArgumentOutside",
     [](ArtifactT &a) { together(a, kGather).to->offset = kHuge - 100; },
     "all_gather: destination: 128 bytes at"},
    {"SourceOutside",
     [](ArtifactT &a) { together(a, kGather).from->bytes = 1024; },
     "all_gather: source: 1024 bytes at 0 leave the io"},
    {"ReducesApart",
     [](ArtifactT &a) { together(a, kReduce).to->offset = 128; },
     "all_reduce: its arguments are not one"},
    {"ReducesOther", [](ArtifactT &a) { together(a, kReduce).to->bytes = 64; },
     "sends 128 bytes and gets 64"},
    {"GathersOntoItself",
     [](ArtifactT &a) {
       *together(a, kGather).from = arg(Space::arena, 64, 48);
     },
     "all_gather: its arguments overlap"},
    {"HalfAnElement",
     [](ArtifactT &a) {
       together(a, kReduce).from->bytes = together(a, kReduce).to->bytes = 126;
     },
     "an argument of 126 or 126 bytes for f32"},
    {"CountsMissing",
     [](ArtifactT &a) { together(a, kGather).counts.pop_back(); },
     "all_gather: 2 counts, but it takes 3"},
    {"CountsOfReduction",
     [](ArtifactT &a) { together(a, kReduce).counts = {1, 1, 1}; },
     "all_reduce: 3 counts, but it takes 0"},
    {"CountsElsewhere",
     [](ArtifactT &a) { together(a, kGather).counts = {12, 12, 7}; },
     "counts of 124 bytes for an argument of 128"},
    {"CountsWrap",
     [](ArtifactT &a) { together(a, kGather).counts = {kHuge / 4 + 1, 24, 8}; },
     "counts beyond memory"},
    {"CountsOfOthers",
     [](ArtifactT &a) { together(a, kGather).counts = {12, 8, 12}; },
     "member 1 counts 8 elements, its argument has 48 bytes"},
    {"ScatterCountsOfOthers",
     [](ArtifactT &a) { together(a, kScatter).counts = {8, 12, 12}; },
     "member 0 counts 8 elements, its argument has 48 bytes"},
    {"UnequalPieces",
     [](ArtifactT &a) { together(a, kAllToAll).counts = {9, 8, 7}; },
     "an exchange of unequal pieces"},
    {"TargetBeyond",
     [](ArtifactT &a) { together(a, kPermute).targets = {1, 3, -1}; },
     "sends to member 3 of 3, or to it twice"},
    {"TargetNegative",
     [](ArtifactT &a) { together(a, kPermute).targets = {1, -2, -1}; },
     "sends to member -2 of 3"},
    {"TargetTwice",
     [](ArtifactT &a) { together(a, kPermute).targets = {1, 1, -1}; },
     "sends to member 1 of 3, or to it twice"},
    {"TargetsMissing",
     [](ArtifactT &a) { together(a, kPermute).targets = {1, -1}; },
     "permute: 2 targets, but it takes 3"},
    {"TargetsOfGather",
     [](ArtifactT &a) { together(a, kGather).targets = {0, 1, 2}; },
     "all_gather: 3 targets, but it takes 0"},
    {"PermutesToOtherSize",
     [](ArtifactT &a) { together(a, kPermute).to->bytes = 92; },
     "permute: sends 96 bytes and gets 92"},
    {"RowsMissing", [](ArtifactT &a) { exchangeRows(a).rows = nullptr; },
     "exchange_rows: counts and width of rows, which it lacks"},
    {"RowsWithoutWidth", [](ArtifactT &a) { exchangeRows(a).width = 0; },
     "exchange_rows: counts and width of rows, which it lacks"},
    {"RowsOfReduction", [](ArtifactT &a) { together(a, kReduce).width = 4; },
     "all_reduce: counts and width of rows, but it exchanges none"},
    {"RowsWithCounts", [](ArtifactT &a) { exchangeRows(a).counts = {8, 8, 8}; },
     "exchange_rows: 3 counts, but it takes 0"},
    {"RowsTorn", [](ArtifactT &a) { exchangeRows(a).width = 5; },
     "rows of 5 elements in arguments of 96 and 96 bytes"},
    {"RowsWrap", [](ArtifactT &a) { exchangeRows(a).width = kHuge / 4 + 2; },
     "in arguments of 96 and 96 bytes"},
    {"RowsOfOthers", [](ArtifactT &a) { exchangeRows(a).rows->bytes = 20; },
     "counts of 20 bytes for 3 members"},
    {"RowsOutside", [](ArtifactT &a) { exchangeRows(a).rows->offset = 340; },
     "counts of rows"},
    {"RowsOverwritten",
     [](ArtifactT &a) { exchangeRows(a).rows->offset = 128; },
     "exchange_rows: its arguments overlap"},
    {"NobodyWaits",
     [](ArtifactT &a) { program(a).steps.erase(program(a).steps.begin() + 7); },
     "nothing waits for ticket 7"},
    {"WaitsForNothing", [](ArtifactT &a) { together(a, kStarted).ticket = 0; },
     "no collective has the ticket 7 here"},
    {"WaitsElsewhere",
     [](ArtifactT &a) { *program(a).steps[7] = loop(1, {wait(7)}); },
     "no collective has the ticket 7 here"},
    {"TicketTwice", [](ArtifactT &a) { together(a, kPermute).ticket = 7; },
     "ticket 7 is under way"},
};

class ValidateShares : public testing::TestWithParam<Hostile> {};

} // namespace

TEST(ValidateArtifact, AcceptsAMesh) { EXPECT_EQ(errorOf(meshArtifact()), ""); }

// Both sides may move with a loop, as long as they stay apart.
TEST(ValidateArtifact, CollectivesInLoops) {
  const auto errorWith = [](std::vector<std::uint64_t> from,
                            std::vector<std::uint64_t> to) {
    ArtifactT artifact = meshArtifact();
    for (int share : {0, 1}) {
      ProgramT &program = *artifact.shares[share]->devices[0]->programs[0];
      CollectiveT moves =
          collective(CollectiveKind::permute, arg(Space::arena, 0, 16, from),
                     arg(Space::arena, 64, 16, to), {}, {1, 2, 0});
      program.steps.push_back(
          std::make_unique<NodeT>(loop(4, {node(moves, "test.loop")})));
    }
    return errorOf(artifact);
  };
  EXPECT_EQ(errorWith({0}, {64}), "");
  EXPECT_EQ(errorWith({64}, {64}), "");
  EXPECT_NE(errorWith({64}, {0}).find("its arguments overlap"),
            std::string::npos);
}

// What is looked at rank by rank is bounded: a million ranks, and many tensors
// each of which is cut unevenly in its own way.
TEST(ValidateArtifact, RefusesToLookAtRanksForever) {
  constexpr std::uint32_t kHalf = 1u << 19;
  ArtifactT artifact = emptyArtifact();
  artifact.mesh = owned<MeshAxisT>({meshAxis("a", kHalf), meshAxis("b", 2)});
  artifact.shares[0]->ranks.clear();
  artifact.shares.push_back(std::make_unique<ShareT>(share(artifact)));
  for (std::uint32_t rank = 0; rank < 2 * kHalf; ++rank)
    artifact.shares[rank % 2]->ranks.push_back(rank);
  for (std::uint32_t rank : {0, 1})
    for (std::uint32_t i = 0; i < 65; ++i) {
      const std::uint64_t size = 2 * i + 1;
      TensorT one = tensor("w" + std::to_string(i), ElementType::f32,
                           {std::int64_t(i) + 1 - rank}, Role::parameter,
                           Space::state, 512 * std::uint64_t(i));
      one.cuts = owned<DimCutT>({dimCut({cut(size, {1})})});
      artifact.shares[rank]->state.push_back(std::make_unique<TensorT>(one));
      artifact.shares[rank]->state_bytes = 512 * 65;
    }
  EXPECT_NE(
      errorOf(artifact).find(
          "state tensor 'w64': too many different cuts for so many ranks"),
      std::string::npos)
      << errorOf(artifact);
}

TEST_P(ValidateShares, Refuses) {
  ArtifactT artifact = meshArtifact();
  GetParam().plant(artifact);
  const std::string error = errorOf(artifact);
  EXPECT_NE(error.find(GetParam().expected), std::string::npos)
      << "got: " << error;
  EXPECT_EQ(error.find("hostile: offset 0x"), 0u) << error;
}

INSTANTIATE_TEST_SUITE_P(Hostile, ValidateShares, testing::ValuesIn(kHostile),
                         nameOf);
