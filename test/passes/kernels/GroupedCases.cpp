// Grouped contractions: groups without rows, groups that have all, sizes that
// no tile divides, rows of no group (which hold NaN), both layouts, epilogues.
#include "test/passes/kernels/KernelCases.h"
#include <cmath>
#include <fmt/format.h>

namespace tessera::testing {
namespace {

/// Offsets of packed rows, or counts of padded ones.
struct Groups {
  std::string name;
  std::vector<double> sizes;
  int rows; ///< of all groups, or of each
  bool isPadded = false;

  int count() const {
    return static_cast<int>(sizes.size()) - (isPadded ? 0 : 1);
  }
  std::string tensor(int width, const std::string &element) const {
    return isPadded ? fmt::format("tensor<{}x{}x{}x{}>", count(), rows, width,
                                  element)
                    : fmt::format("tensor<{}x{}x{}>", rows, width, element);
  }
  std::string type() const {
    return fmt::format("tensor<{}xi32>", sizes.size());
  }
};

const std::vector<Groups> &allGroups() {
  static const std::vector<Groups> groups{
      {"Ragged", {0, 0, 37, 38, 38, 101, 140}, 140},
      {"Tail", {0, 5, 5, 70}, 150},
      {"One", {0, 0, 0, 130, 130}, 130},
      {"None", {0, 0, 0}, 33},
      {"Padded", {0, 45, 17, 1, 32}, 45, true},
      {"PaddedOne", {0, 0, 150}, 150, true},
  };
  return groups;
}

// The groups are given their sizes, and what belongs to none is no number.
std::function<void(std::vector<interpreter::Tensor> &)>
prepare(const Groups &groups, std::vector<unsigned> rowInputs,
        unsigned groupInput) {
  return [=](std::vector<interpreter::Tensor> &inputs) {
    inputs[groupInput].data = groups.sizes;
    for (unsigned input : rowInputs) {
      interpreter::Tensor &tensor = inputs[input];
      int64_t width = tensor.shape.back();
      int64_t end = groups.rows;
      for (int64_t row = 0; row < tensor.size() / width; ++row) {
        double owned =
            groups.isPadded ? groups.sizes[row / end] : groups.sizes.back();
        if (static_cast<double>(row % end) >= owned)
          for (int64_t i = 0; i < width; ++i)
            tensor.data[row * width + i] = NAN;
      }
    }
  };
}

struct Element {
  std::string factors, result;
  double tolerance() const { return result == "f32" ? 1e-5 : 1e-2; }
  std::string name() const {
    return factors == result ? factors : factors + "_" + result;
  }
};

KernelCase matmul(const Groups &groups, int k, int n, bool transposed,
                  const Element &element) {
  std::string x = groups.tensor(k, element.factors),
              w = fmt::format("tensor<{}x{}x{}x{}>", groups.count(),
                              transposed ? n : k, transposed ? k : n,
                              element.factors),
              y = groups.tensor(n, element.result);
  return {fmt::format("Grouped{}_{}x{}{}_{}", groups.name, k, n,
                      transposed ? "T" : "", element.name()),
          fmt::format(R"(
func.func @main(%x: {0}, %w: {1}, %g: {2}) -> {3} {{
  %y = graph.grouped_matmul %x, %w groups %g {4} : ({0}, {1}, {2}) -> {3}
  return %y : {3}
}})",
                      x, w, groups.type(), y, transposed ? "{transposed}" : ""),
          -1,
          1,
          element.tolerance(),
          prepare(groups, {0}, 2)};
}

KernelCase outer(const Groups &groups, int m, int n, const Element &element) {
  std::string x = groups.tensor(m, element.factors),
              y = groups.tensor(n, element.factors),
              z = fmt::format("tensor<{}x{}x{}x{}>", groups.count(), m, n,
                              element.result);
  return {
      fmt::format("GroupedOuter{}_{}x{}_{}", groups.name, m, n, element.name()),
      fmt::format(R"(
func.func @main(%x: {0}, %y: {1}, %g: {2}) -> {3} {{
  %z = graph.grouped_outer %x, %y groups %g : ({0}, {1}, {2}) -> {3}
  return %z : {3}
}})",
                  x, y, groups.type(), z),
      -1,
      1,
      element.tolerance(),
      prepare(groups, {0, 1}, 2)};
}

std::vector<KernelCase> products() {
  const Element f32{"f32", "f32"}, bf16{"bf16", "bf16"}, mixed{"bf16", "f32"};
  std::vector<KernelCase> cases;
  for (const Groups &groups : allGroups()) {
    cases.push_back(matmul(groups, 67, 70, false, f32));
    cases.push_back(matmul(groups, 67, 70, true, bf16));
    cases.push_back(matmul(groups, 96, 128, true, bf16));
    cases.push_back(outer(groups, 45, 70, f32));
    cases.push_back(outer(groups, 40, 72, mixed));
  }
  const Groups &ragged = allGroups()[0], &padded = allGroups()[4];
  for (const Groups *groups : {&ragged, &padded}) {
    cases.push_back(matmul(*groups, 128, 64, false, bf16));
    cases.push_back(matmul(*groups, 1, 5, false, f32));
    cases.push_back(matmul(*groups, 24, 1, true, f32));
    cases.push_back(outer(*groups, 1, 19, f32));
    cases.push_back(outer(*groups, 19, 1, bf16));
    cases.push_back(outer(*groups, 64, 128, bf16));
  }
  // More tiles than multiprocessors: blocks that take several in turn, of
  // groups most of which are empty.
  Groups many{"Many", std::vector<double>(140), 128, true};
  many.sizes[3] = 128, many.sizes[70] = 65, many.sizes[139] = 1;
  cases.push_back(matmul(many, 8, 256, false, bf16));
  // One row has no skeleton of its own.
  Groups single{"Single", {0, 0, 1}, 1};
  cases.push_back(matmul(single, 9, 5, false, f32));
  cases.push_back(outer(single, 9, 5, f32));
  return cases;
}

// A mixture's gated layer: both products of the same rows, the gate on the
// accumulators of the second; then a bias for each column, and a residual.
KernelCase gate(const Groups &groups, int k, int n,
                const std::string &element) {
  std::string x = groups.tensor(k, element), y = groups.tensor(n, element),
              w = fmt::format("tensor<{}x{}x{}x{}>", groups.count(), n, k,
                              element);
  return {fmt::format("GroupedGate{}_{}", groups.name, element),
          fmt::format(R"(
func.func @main(%x: {0}, %v: {1}, %w: {1}, %g: {2}, %b: tensor<{4}x{5}>, %r: {3}) -> {3} {{
  %gate = graph.grouped_matmul %x, %v groups %g {{transposed}} : ({0}, {1}, {2}) -> {3}
  %up = graph.grouped_matmul %x, %w groups %g {{transposed}} : ({0}, {1}, {2}) -> {3}
  %act = graph.silu %gate : {3}
  %h = graph.mul %act, %up : {3}
  %bias = graph.broadcast %b dims [{6}] : tensor<{4}x{5}> -> {3}
  %s = graph.add %h, %bias : {3}
  %z = graph.add %s, %r : {3}
  return %z : {3}
}})",
                      x, w, groups.type(), y, n, element,
                      groups.isPadded ? 2 : 1),
          -1,
          1,
          element == "f32" ? 1e-5 : 2e-2,
          prepare(groups, {0}, 3)};
}

// Columns of wider rows, a transposed view of the weights, factors that were
// narrower, the result in two dimensions more: what of it the epilogue takes.
KernelCase views() {
  const Groups groups{"Views", {0, 11, 30, 48}, 48};
  return {"GroupedViews", R"(
func.func @main(%x: tensor<48x64xbf16>, %w: tensor<32x3x40xbf16>, %g: tensor<4xi32>, %b: tensor<6x40xf32>) -> (tensor<8x6x40xf32>, tensor<48x80xf32>) {
  %p = graph.slice %x [0, 32] : tensor<48x64xbf16> -> tensor<48x32xbf16>
  %q = graph.convert %p : tensor<48x32xbf16> -> tensor<48x32xf32>
  %t = graph.transpose %w [1, 0, 2] : tensor<32x3x40xbf16> -> tensor<3x32x40xbf16>
  %u = graph.convert %t : tensor<3x32x40xbf16> -> tensor<3x32x40xf32>
  %y = graph.grouped_matmul %q, %u groups %g : (tensor<48x32xf32>, tensor<3x32x40xf32>, tensor<4xi32>) -> tensor<48x40xf32>
  %r = graph.reshape %y : tensor<48x40xf32> -> tensor<8x6x40xf32>
  %c = graph.broadcast %b dims [1, 2] : tensor<6x40xf32> -> tensor<8x6x40xf32>
  %s = graph.add %r, %c : tensor<8x6x40xf32>
  %z = graph.concat %y, %y dim 1 : (tensor<48x40xf32>, tensor<48x40xf32>) -> tensor<48x80xf32>
  return %s, %z : tensor<8x6x40xf32>, tensor<48x80xf32>
})", -1, 1, 1e-5, prepare(groups, {}, 2)};
}

// Gradients of weights that are added up over the turns of a loop.
KernelCase accumulated() {
  const Groups groups{"Sum", {0, 0, 20, 33}, 40};
  return {"GroupedAccumulated", R"(
func.func @main(%x: tensor<40x24xbf16>, %y: tensor<40x32xbf16>, %g: tensor<4xi32>, %zero: tensor<3x24x32xf32>) -> tensor<3x24x32xf32> {
  %sum = graph.loop 3 (%i, %acc = %zero) : (tensor<3x24x32xf32>) {
    %d = graph.grouped_outer %x, %y groups %g : (tensor<40x24xbf16>, tensor<40x32xbf16>, tensor<4xi32>) -> tensor<3x24x32xf32>
    %s = graph.add %acc, %d : tensor<3x24x32xf32>
    graph.yield %s : tensor<3x24x32xf32>
  }
  return %sum : tensor<3x24x32xf32>
})", -1, 1, 1e-5, prepare(groups, {0, 1}, 2)};
}

} // namespace

const std::vector<KernelCase> &groupedCases() {
  static const std::vector<KernelCase> cases = [] {
    std::vector<KernelCase> all = products();
    for (const char *element : {"f32", "bf16"})
      for (size_t i : {0, 1, 4})
        all.push_back(gate(allGroups()[i], 64, 72, element));
    all.push_back(views());
    all.push_back(accumulated());
    return all;
  }();
  return cases;
}

const std::vector<KernelCase> &largeGroupedCases() {
  static const std::vector<KernelCase> cases = [] {
    const Groups packed{"Large", std::vector<double>(9), 16384},
        padded{"LargePadded", std::vector<double>(64), 512, true};
    const Element bf16{"bf16", "bf16"}, mixed{"bf16", "f32"};
    std::vector<KernelCase> all{
        matmul(packed, 14336, 4096, false, bf16),
        matmul(padded, 2048, 768, true, bf16),
        outer(packed, 4096, 14336, mixed),
        outer(padded, 2048, 768, bf16),
        matmul(packed, 4096, 14336, true, {"f32", "f32"}),
        gate(padded, 2048, 768, "bf16")};
    return all;
  }();
  return cases;
}

} // namespace tessera::testing
