// Contractions: every majorness of both operands, ragged and single dimensions,
// batches, several sums, epilogues, views.
#include "test/passes/kernels/KernelCases.h"
#include <fmt/format.h>
#include <map>

namespace tessera::testing {
namespace {

struct Product {
  std::string name, equation;
  std::map<char, int> sizes;
  std::string element = "f32", result = "f32";
};

std::string tensor(const std::string &labels, const Product &p,
                   const std::string &element) {
  std::string shape;
  for (char label : labels)
    shape += std::to_string(p.sizes.at(label)) + "x";
  return "tensor<" + shape + element + ">";
}

KernelCase make(const Product &p) {
  size_t comma = p.equation.find(','), arrow = p.equation.find("->");
  std::string x = tensor(p.equation.substr(0, comma), p, p.element),
              y = tensor(p.equation.substr(comma + 1, arrow - comma - 1), p,
                         p.element),
              z = tensor(p.equation.substr(arrow + 2), p, p.result);
  return {p.name,
          fmt::format(R"(
func.func @main(%x: {0}, %y: {1}) -> {2} {{
  %p = graph.einsum "{3}" %x, %y : ({0}, {1}) -> {2}
  return %p : {2}
}})",
                      x, y, z, p.equation),
          -1, 1, p.result == "f32" ? 1e-5 : 1e-2};
}

std::vector<KernelCase> products() {
  std::vector<KernelCase> cases;
  std::map<char, int> ragged{{'m', 45}, {'n', 70}, {'k', 67}};
  std::map<char, int> whole{{'m', 64}, {'n', 128}, {'k', 96}};
  int number = 0;
  for (const char *element : {"f32", "bf16"})
    for (const char *equation :
         {"mk,kn->mn", "mk,nk->mn", "km,kn->mn", "km,nk->mn", "mk,kn->nm"}) {
      std::string order = std::to_string(number++ % 5);
      cases.push_back(make({fmt::format("Product{}Ragged_{}", order, element),
                            equation, ragged, element}));
      cases.push_back(make({fmt::format("Product{}Whole_{}", order, element),
                            equation, whole, element}));
    }
  std::map<char, int> labels{{'b', 3},  {'t', 10}, {'h', 2},
                             {'d', 18}, {'s', 19}, {'n', 35}};
  number = 0;
  for (const char *equation :
       {"bthd,bshd->bhts", "bhts,bshd->bthd", "bthd,hdn->btn", "btd,bts->ds",
        "bthd,bthn->hdn", "bd,hd->bhd", "bd,bd->b", "bd,bd->", "b,d->bd"})
    cases.push_back(
        make({fmt::format("Batches{}", number++), equation, labels}));
  cases.push_back(make(
      {"FewRows", "mk,nk->mn", {{'m', 5}, {'n', 33}, {'k', 901}}, "bf16"}));
  // One row and several by asynchronous copies: more chunks than stages, ragged
  // ones, contiguous columns, a sum shorter than a chunk.
  for (int rows : {1, 7})
    for (auto [name, equation, terms] : {std::tuple("Long", "mk,nk->mn", 1336),
                                         {"Columns", "mk,kn->mn", 1336},
                                         {"Short", "mk,nk->mn", 40}})
      cases.push_back(make({fmt::format("FewRows{}{}", name, rows),
                            equation,
                            {{'m', rows}, {'n', 40}, {'k', terms}},
                            "bf16"}));
  cases.push_back(make({"NarrowResult",
                        "mk,kn->mn",
                        {{'m', 40}, {'n', 50}, {'k', 64}},
                        "bf16",
                        "bf16"}));
  cases.push_back(make({"ManyBlocks",
                        "mk,nk->mn",
                        {{'m', 517}, {'n', 100}, {'k', 24}},
                        "bf16"}));
  // Tiles of 128 × 128: 13 × 13 of them fill a chip.
  cases.push_back(make({"LargeTiles",
                        "mk,nk->mn",
                        {{'m', 1600}, {'n', 1601}, {'k', 40}},
                        "bf16"}));
  return cases;
}

// Of bf16 with strides of whole 16 bytes, as the copy engine of sm_90 brings
// them: both majors of both operands, ragged tiles and sums, batches, several
// sums, more steps than stages, tiles of one and of two warpgroups.
std::vector<KernelCase> boxedProducts() {
  std::vector<KernelCase> cases;
  int number = 0;
  for (const char *equation :
       {"mk,kn->mn", "mk,nk->mn", "km,kn->mn", "km,nk->mn"})
    cases.push_back(make({fmt::format("Boxes{}", number++),
                          equation,
                          {{'m', 72}, {'n', 200}, {'k', 136}},
                          "bf16"}));
  std::map<char, int> labels{{'b', 3},  {'t', 24}, {'h', 2},
                             {'d', 40}, {'s', 72}, {'n', 88}};
  for (const char *equation : {"bthd,bshd->bhts", "bhts,bshd->bthd",
                               "bthd,hdn->btn", "bthd,bthn->hdn"})
    cases.push_back(make(
        {fmt::format("Boxes{}", number++), equation, labels, "bf16", "bf16"}));
  cases.push_back(make({"BoxesManySteps",
                        "mk,nk->mn",
                        {{'m', 64}, {'n', 64}, {'k', 1000}},
                        "bf16",
                        "bf16"}));
  // 18 rows of tiles, in two groups.
  cases.push_back(make({"BoxesGroups",
                        "mk,nk->mn",
                        {{'m', 1150}, {'n', 136}, {'k', 40}},
                        "bf16"}));
  // 12 × 12 tiles of 128 × 128, 12 × 11 and 10 × 20 of 128 × 256; those that
  // are more than 132 share blocks.
  cases.push_back(make({"BoxesLargeTiles",
                        "mk,kn->mn",
                        {{'m', 1500}, {'n', 1496}, {'k', 136}},
                        "bf16",
                        "bf16"}));
  cases.push_back(make({"BoxesWideTiles",
                        "km,kn->mn",
                        {{'m', 1536}, {'n', 2800}, {'k', 136}},
                        "bf16",
                        "bf16"}));
  cases.push_back(make({"BoxesManyWideTiles",
                        "mk,nk->mn",
                        {{'m', 1270}, {'n', 5112}, {'k', 72}},
                        "bf16",
                        "bf16"}));
  return cases;
}

const KernelCase boxedEpilogue{"BoxedEpilogue", R"(
func.func @main(%x: tensor<200x72xbf16>, %w: tensor<72x136xbf16>, %bias: tensor<136xf32>, %r: tensor<200x136xf32>)
    -> (tensor<200x136xbf16>, tensor<200x136xf32>) {
  %0 = graph.einsum "mk,kn->mn" %x, %w : (tensor<200x72xbf16>, tensor<72x136xbf16>) -> tensor<200x136xf32>
  %1 = graph.broadcast %bias dims [1] : tensor<136xf32> -> tensor<200x136xf32>
  %2 = graph.add %0, %1 : tensor<200x136xf32>
  %3 = graph.tanh %2 : tensor<200x136xf32>
  %4 = graph.add %3, %r : tensor<200x136xf32>
  %5 = graph.convert %2 : tensor<200x136xf32> -> tensor<200x136xbf16>
  return %5, %4 : tensor<200x136xbf16>, tensor<200x136xf32>
})",
                               -1, 1, 1e-2};

const KernelCase epilogue{"Epilogue", R"(
func.func @main(%x: tensor<37x20xf32>, %w: tensor<20x50xf32>, %bias: tensor<50xf32>, %r: tensor<37x50xf32>)
    -> (tensor<37x50xf32>, tensor<37x50xf32>) {
  %0 = graph.einsum "mk,kn->mn" %x, %w : (tensor<37x20xf32>, tensor<20x50xf32>) -> tensor<37x50xf32>
  %1 = graph.broadcast %bias dims [1] : tensor<50xf32> -> tensor<37x50xf32>
  %2 = graph.add %0, %1 : tensor<37x50xf32>
  %3 = graph.tanh %2 : tensor<37x50xf32>
  %4 = graph.add %3, %r : tensor<37x50xf32>
  return %2, %4 : tensor<37x50xf32>, tensor<37x50xf32>
})",
                          -1, 1, 1e-5};

const KernelCase views{"OperandsThroughViews", R"(
func.func @main(%x: tensor<2x12x90xf32>, %w: tensor<40x30xbf16>) -> tensor<2x12x40xf32> {
  %0 = graph.slice %x [0, 0, 30] : tensor<2x12x90xf32> -> tensor<2x12x30xf32>
  %1 = graph.transpose %w [1, 0] : tensor<40x30xbf16> -> tensor<30x40xbf16>
  %2 = graph.convert %1 : tensor<30x40xbf16> -> tensor<30x40xf32>
  %3 = graph.einsum "btk,kn->btn" %0, %2 : (tensor<2x12x30xf32>, tensor<30x40xf32>) -> tensor<2x12x40xf32>
  return %3 : tensor<2x12x40xf32>
})",
                       -1, 1, 1e-5};

const KernelCase repeated{"RepeatedRow", R"(
func.func @main(%x: tensor<30xf32>, %w: tensor<30x40xf32>) -> tensor<17x40xf32> {
  %0 = graph.broadcast %x dims [1] : tensor<30xf32> -> tensor<17x30xf32>
  %1 = graph.einsum "mk,kn->mn" %0, %w : (tensor<17x30xf32>, tensor<30x40xf32>) -> tensor<17x40xf32>
  return %1 : tensor<17x40xf32>
})",
                          -1, 1, 1e-5};

// A head and its gradient: weights of rows that are no multiple of 16 bytes,
// summed along them and across them, from sums with such rows.
KernelCase paddedRows(const std::string &type) {
  std::string text = R"(
func.func @main(%x: tensor<2x20x64xTYPE>, %w: tensor<133x64xTYPE>)
    -> (tensor<2x20x64xf32>, tensor<133x64xf32>, tensor<133xf32>) {
  %0 = graph.einsum "btk,vk->btv" %x, %w : (tensor<2x20x64xTYPE>, tensor<133x64xTYPE>) -> tensor<2x20x133xf32>
  %1 = graph.reduce %0 max dims [2] : tensor<2x20x133xf32> -> tensor<2x20xf32>
  %2 = graph.broadcast %1 dims [0, 1] : tensor<2x20xf32> -> tensor<2x20x133xf32>
  %3 = graph.sub %0, %2 : tensor<2x20x133xf32>
  %4 = graph.exp %3 : tensor<2x20x133xf32>
  %5 = graph.reduce %4 sum dims [2] : tensor<2x20x133xf32> -> tensor<2x20xf32>
  %6 = graph.broadcast %5 dims [0, 1] : tensor<2x20xf32> -> tensor<2x20x133xf32>
  %7 = graph.div %4, %6 : tensor<2x20x133xf32>
  %8 = graph.convert %7 : tensor<2x20x133xf32> -> tensor<2x20x133xTYPE>
  %9 = graph.einsum "btv,vk->btk" %8, %w : (tensor<2x20x133xTYPE>, tensor<133x64xTYPE>) -> tensor<2x20x64xf32>
  %10 = graph.einsum "btv,btk->vk" %8, %x : (tensor<2x20x133xTYPE>, tensor<2x20x64xTYPE>) -> tensor<133x64xf32>
  %11 = graph.convert %8 : tensor<2x20x133xTYPE> -> tensor<2x20x133xf32>
  %12 = graph.reduce %11 sum dims [0, 1] : tensor<2x20x133xf32> -> tensor<133xf32>
  return %9, %10, %12 : tensor<2x20x64xf32>, tensor<133x64xf32>, tensor<133xf32>
})";
  for (size_t at; (at = text.find("TYPE")) != std::string::npos;)
    text.replace(at, 4, type);
  return {"PaddedRows_" + type, text, -1, 1, type == "f32" ? 1e-5 : 1e-2};
}

} // namespace

const std::vector<KernelCase> &contractionCases() {
  static const std::vector<KernelCase> cases = [] {
    std::vector<KernelCase> all = products();
    for (KernelCase &boxed : boxedProducts())
      all.push_back(std::move(boxed));
    all.insert(all.end(), {boxedEpilogue, epilogue, views, repeated,
                           paddedRows("bf16"), paddedRows("f32")});
    return all;
  }();
  return cases;
}

} // namespace tessera::testing
