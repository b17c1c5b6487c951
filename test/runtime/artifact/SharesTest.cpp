// Shares against loops over every element.
#include "runtime/artifact/Shares.h"
#include "runtime/artifact/CollectiveTable.h"
#include "test/runtime/artifact/MeshArtifact.h"

#include <numeric>
#include <random>

#include <gtest/gtest.h>

using namespace tessera;
using namespace tessera::test;

namespace {

/// A mesh and one tensor of the state, packed; the validator never saw it.
class OneTensor {
public:
  OneTensor(std::vector<std::uint32_t> mesh,
            std::vector<std::vector<CutT>> dims) {
    ArtifactT artifact = emptyArtifact();
    for (std::size_t axis = 0; axis < mesh.size(); ++axis)
      artifact.mesh.push_back(std::make_unique<MeshAxisT>(
          meshAxis("axis" + std::to_string(axis), mesh[axis])));
    TensorT whole =
        tensor("w", ElementType::i32, {}, Role::parameter, Space::state, 0);
    whole.shape.assign(dims.size(), 1); // of no meaning here
    for (std::vector<CutT> &factors : dims)
      whole.cuts.push_back(
          std::make_unique<DimCutT>(dimCut(std::move(factors))));
    share(artifact).state = owned<TensorT>({whole});
    text = pack(artifact);
  }
  const Artifact &root() const { return *GetArtifact(text.data()); }
  const Tensor &tensor_() const {
    return *root().shares()->Get(0)->state()->Get(0);
  }

private:
  std::string text;
};

/// Numbers of the whole tensor's elements that the rank has, in order: each
/// element's index in each factor is in the rank's range, found by cutting
/// lists of indices.
std::vector<std::uint64_t> elementsOf(const OneTensor &one,
                                      std::uint32_t rank) {
  const auto &axes = *one.root().mesh();
  std::vector<std::uint32_t> at(axes.size());
  for (std::size_t axis = axes.size(); axis-- > 0;) {
    at[axis] = rank % axes.Get(axis)->size();
    rank /= axes.Get(axis)->size();
  }
  std::vector<std::uint64_t> elements = {0};
  if (!one.tensor_().cuts())
    return elements; // a scalar
  for (const DimCut *dim : *one.tensor_().cuts())
    for (const Cut *factor : *dim->factors()) {
      std::vector<std::uint64_t> indices(factor->size());
      std::iota(indices.begin(), indices.end(), 0);
      if (factor->axes())
        for (const std::uint32_t axis : *factor->axes()) {
          // Dealt out as evenly as can be, the first ones getting more.
          const std::size_t n = axes.Get(axis)->size();
          std::vector<std::size_t> sizes(n);
          for (std::size_t i = 0; i < indices.size(); ++i)
            ++sizes[i % n];
          std::size_t start = 0;
          for (std::uint32_t i = 0; i < at[axis]; ++i)
            start += sizes[i];
          indices = {indices.begin() + start,
                     indices.begin() + start + sizes[at[axis]]};
        }
      std::vector<std::uint64_t> next;
      for (const std::uint64_t element : elements)
        for (const std::uint64_t index : indices)
          next.push_back(element * factor->size() + index);
      elements = std::move(next);
    }
  return elements;
}

void expectRuns(const OneTensor &one, std::uint32_t rank) {
  const Mesh mesh(one.root());
  const std::vector<std::uint64_t> expected = elementsOf(one, rank);
  std::vector<std::uint64_t> found;
  std::size_t runs = 0, breaks = expected.empty() ? 0 : 1;
  for (std::size_t i = 1; i < expected.size(); ++i)
    breaks += expected[i] != expected[i - 1] + 1;
  ShareRuns list(one.tensor_(), mesh, mesh.coordinatesOf(rank));
  while (const Run *run = list.next()) {
    EXPECT_EQ(run->part, found.size());
    for (std::uint64_t i = 0; i < run->count; ++i)
      found.push_back(run->whole + i);
    ++runs;
  }
  EXPECT_EQ(found, expected);
  EXPECT_GE(runs, breaks);
  // Ranges that happen to meet across an index are not joined.
  EXPECT_LE(runs, std::max<std::size_t>(breaks, 1) * 3);
}

} // namespace

TEST(Shares, RangesOfUnevenSizes) {
  for (std::uint64_t devices : {1, 2, 3, 5, 8})
    for (std::uint64_t size = 0; size < 20; ++size) {
      std::uint64_t next = 0;
      for (std::uint64_t device = 0; device < devices; ++device) {
        const Range range = rangeOf(size, devices, device);
        EXPECT_EQ(range.start, next);
        EXPECT_EQ(range.size, size / devices + (device < size % devices));
        next += range.size;
      }
      EXPECT_EQ(next, size);
    }
}

TEST(Shares, RanksOfAGroup) {
  const OneTensor one({2, 3, 2}, {});
  const Mesh mesh(one.root());
  EXPECT_EQ(mesh.ranks(), 12u);
  EXPECT_EQ(mesh.coordinatesOf(9), (Coordinates{1, 1, 1}));
  EXPECT_EQ(mesh.rankAt({1, 1, 1}), 9u);
  const std::vector<std::uint32_t> last = {2}, both = {0, 2}, turned = {2, 0};
  EXPECT_EQ(mesh.groupOf(9, last), (std::vector<std::uint32_t>{8, 9}));
  EXPECT_EQ(mesh.groupOf(9, both), (std::vector<std::uint32_t>{2, 3, 8, 9}));
  EXPECT_EQ(mesh.groupOf(9, turned), (std::vector<std::uint32_t>{2, 8, 3, 9}));
}

TEST(Shares, RunsAreThoseOfEveryElement) {
  const OneTensor cases[] = {
      {{3}, {{cut(8, {0})}, {cut(4)}}},
      {{3}, {{cut(4)}, {cut(8, {0})}, {cut(5)}}},
      {{2, 3}, {{cut(7, {1, 0})}, {cut(4, {})}}},
      {{2, 3}, {{cut(5, {0})}, {cut(3), cut(7, {1}), cut(2)}}},
      {{4}, {{cut(3, {0})}, {cut(2)}}}, // one rank has nothing
      {{2}, {{}, {cut(1, {})}, {cut(6, {0})}}},
      {{2, 2}, {{cut(2, {0})}, {cut(2, {1})}, {cut(3)}}},
      {{2}, {}},
  };
  for (const OneTensor &one : cases)
    for (std::uint32_t rank = 0; rank < Mesh(one.root()).ranks(); ++rank) {
      SCOPED_TRACE(rank);
      expectRuns(one, rank);
    }
}

TEST(Shares, RandomCuts) {
  std::mt19937 engine(7);
  const auto draw = [&](std::uint32_t n) { return engine() % n; };
  for (int round = 0; round < 200; ++round) {
    std::vector<std::uint32_t> mesh;
    for (std::uint32_t axis = 0; axis <= draw(3); ++axis)
      mesh.push_back(1 + draw(4));
    std::vector<std::uint32_t> free(mesh.size());
    std::iota(free.begin(), free.end(), 0);
    std::shuffle(free.begin(), free.end(), engine);
    std::vector<std::vector<CutT>> dims(draw(4));
    for (std::vector<CutT> &factors : dims)
      for (std::uint32_t f = 0; f <= draw(3); ++f) {
        CutT factor = cut(1 + draw(6));
        while (!free.empty() && draw(2)) {
          factor.axes.push_back(free.back());
          free.pop_back();
        }
        factors.push_back(factor);
      }
    const OneTensor one(mesh, dims);
    for (std::uint32_t rank = 0; rank < Mesh(one.root()).ranks(); ++rank)
      expectRuns(one, rank);
  }
}

TEST(Shares, CopiesThereAndBack) {
  const OneTensor one({2, 3}, {{cut(5, {0})}, {cut(3), cut(7, {1}), cut(2)}});
  const Mesh mesh(one.root());
  EXPECT_EQ(globalShape(one.tensor_()), (std::vector<std::uint64_t>{5, 42}));
  std::vector<std::int32_t> whole(5 * 42), back(whole.size(), -1);
  std::iota(whole.begin(), whole.end(), 0);
  std::size_t total = 0;
  for (std::uint32_t rank = 0; rank < mesh.ranks(); ++rank) {
    const std::vector<std::uint64_t> expected = elementsOf(one, rank);
    std::vector<std::int32_t> part(expected.size(), -1);
    const Coordinates at = mesh.coordinatesOf(rank);
    copyToShare(one.tensor_(), mesh, at, std::as_bytes(std::span(whole)),
                std::as_writable_bytes(std::span(part)));
    for (std::size_t i = 0; i < part.size(); ++i)
      EXPECT_EQ(static_cast<std::uint64_t>(part[i]), expected[i]);
    copyFromShare(one.tensor_(), mesh, at, std::as_bytes(std::span(part)),
                  std::as_writable_bytes(std::span(back)));
    total += part.size();
    EXPECT_EQ(elementsOfShare(one.tensor_(), mesh, at), part.size());
  }
  EXPECT_EQ(back, whole);
  EXPECT_EQ(total, whole.size());
}

TEST(Shares, OneOfThoseThatHaveTheSameIsFirst) {
  const OneTensor one({2, 3}, {{cut(6, {1})}});
  const Mesh mesh(one.root());
  std::vector<bool> isHolder(mesh.ranks(), true);
  EXPECT_EQ(firstHolders(one.tensor_(), mesh, isHolder),
            (std::vector<std::uint32_t>{0, 1, 2}));
  // Of a pipeline, the first rank may have none.
  isHolder[0] = isHolder[2] = false;
  EXPECT_EQ(firstHolders(one.tensor_(), mesh, isHolder),
            (std::vector<std::uint32_t>{1, 3, 5}));
}

TEST(Shares, AReaderForEachRank) {
  const AlignedBytes bytes(pack(meshArtifact()));
  const auto reader = ArtifactReader::fromBytes(bytes.span(), "mesh");
  ASSERT_TRUE(reader.ok()) << reader.message();
  EXPECT_EQ(reader->share().state()->Get(0)->shape()->Get(0), 3);
  const auto last = reader->forRank(2);
  ASSERT_TRUE(last.ok()) << last.message();
  EXPECT_EQ(last->rank(), 2u);
  EXPECT_EQ(last->share().state()->Get(0)->shape()->Get(0), 2);
  EXPECT_EQ(last->device("cpu"), last->share().devices()->Get(0));
  EXPECT_EQ(reader->forRank(3).message(),
            "mesh: rank 3 is not among the 3 that it was compiled for");
}

TEST(Shares, ATableOfCollectives) {
  ArtifactT artifact = meshArtifact();
  for (auto &each : artifact.shares) {
    ProgramT &program = *each->devices[0]->programs[0];
    auto again = std::make_unique<NodeT>(*program.steps[1]);
    for (ArgT *arg : {again->step.AsCollective()->from.get(),
                      again->step.AsCollective()->to.get()})
      arg->loop_strides = {0};
    program.steps.push_back(std::make_unique<NodeT>(loop(5, {*again})));
  }
  const AlignedBytes bytes(pack(artifact));
  const auto reader = ArtifactReader::fromBytes(bytes.span(), "mesh");
  ASSERT_TRUE(reader.ok()) << reader.message();
  const Program &step = *reader->share().devices()->Get(0)->programs()->Get(0);
  EXPECT_EQ(meshText(reader->root()), "data=3: 3 ranks");
  const auto rows = collectiveRows(reader->root(), step);
  ASSERT_EQ(rows.size(), 6u);
  EXPECT_EQ(rows[1].runs, 6u);
  EXPECT_EQ(rows[1].members, 3u);
  EXPECT_EQ(rows[1].bytes, 128u);
  EXPECT_DOUBLE_EQ(rows[1].sent, 128 * 4.0 / 3);
  EXPECT_DOUBLE_EQ(rows[2].sent, 128 * 2.0 / 3);
  EXPECT_DOUBLE_EQ(rows[4].sent, 96);
  const std::string table = collectiveTable(reader->root(), step);
  EXPECT_NE(table.find("step: 11 collectives, a rank sends"), table.npos);
  EXPECT_NE(table.find("all_reduce max f32 over data (3), overlapped with 0 "
                       "launches over 0 MB"),
            table.npos);
}
