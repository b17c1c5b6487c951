// Products with quantized weights: few rows, which stream them, and many, which
// widen panels; both kinds of integers, and floats, ragged in every dimension.
#include "test/passes/kernels/QuantPrograms.h"

namespace tessera::testing {
using namespace quant;

namespace {

void addNormalFloats(std::vector<KernelCase> &cases) {
  auto nf4 = [](const char *name, int64_t rows, int64_t n, int64_t k) {
    return Shape{name, rows, n, k, 4, 64, false, true};
  };
  // Rows with part of one 256 of absmax, of two, and of three; several chunks
  // of the sum, panels of several widths.
  const Shape shapes[] = {
      nf4("Nf4One", 1, 32, 64),      nf4("Nf4Few", 7, 48, 192),
      nf4("Nf4Many", 45, 176, 320),  nf4("Nf4Packed", 101, 240, 1152),
      nf4("Nf4Deep", 40, 64, 16512), nf4("Nf4Wide", 33, 4144, 64),
      nf4("Nf4Spans", 3, 48, 28672)};
  for (const char *element : {"f32", "bf16"})
    for (const Shape &shape : shapes) {
      cases.push_back(make(shape, element, false, shape.rows % 2));
      cases.push_back(makeRowSums(shape, element, false, false));
    }
  cases.push_back(make(shapes[2], "bf16", true, true));
  cases.push_back(makeRowSums(shapes[2], "bf16", true, false));
  cases.push_back(makeRowSums(shapes[2], "f32", true, true));
  cases.push_back(makeRowSums(shapes[3], "bf16", false, true));
  const Shape others[] = {{"Int8", 37, 80, 144, 8, 64},
                          {"Int4Zeros", 29, 96, 176, 4, 32, true},
                          {"Fp8", 45, 128, 128, 8, 128, false, true}};
  for (const Shape &shape : others) {
    cases.push_back(makeRowSums(shape, "f32", false, false));
    cases.push_back(makeRowSums(shape, "bf16", false, false));
  }
}

void addMxfp4(std::vector<KernelCase> &cases) {
  auto mxfp4 = [](const char *name, int64_t rows, int64_t n, int64_t k) {
    return Shape{name, rows, n, k, 4, 32, false, true};
  };
  const Shape shapes[] = {mxfp4("Mxfp4One", 1, 64, 64),
                          mxfp4("Mxfp4OneRagged", 1, 75, 160),
                          mxfp4("Mxfp4FiveRows", 5, 300, 96),
                          mxfp4("Mxfp4SixteenRows", 16, 280, 288),
                          mxfp4("Mxfp4Many", 45, 128, 128),
                          mxfp4("Mxfp4ManyRagged", 37, 70, 96),
                          mxfp4("Mxfp4ManyDeep", 24, 52, 8224),
                          mxfp4("Mxfp4Packed", 101, 72, 1152),
                          mxfp4("Mxfp4PackedPanels", 77, 192, 1152)};
  for (const char *element : {"f32", "bf16"}) {
    for (const Shape &shape : shapes)
      cases.push_back(make(shape, element, false, shape.rows % 2));
    cases.push_back(
        makeRowSums(mxfp4("Mxfp4", 37, 80, 288), element, false, false));
    cases.push_back(makeRows(mxfp4("Mxfp4", 37, 75, 160), element));
  }
  cases.push_back(make(shapes[1], "f32", true, true));
  cases.push_back(make(shapes[5], "bf16", true, true));
}

void addSuperBlocks(std::vector<KernelCase> &cases) {
  auto super = [](const char *name, int64_t rows, int64_t n, int64_t k,
                  int64_t bits) {
    return Shape{name, rows, n, k, bits, 256, false, false, true};
  };
  for (int64_t bits : {4, 5, 6}) {
    const Shape few[] = {super("SuperOne", 1, 64, 256, bits),
                         super("SuperOneRagged", 1, 75, 768, bits),
                         super("SuperFiveRows", 5, 300, 512, bits),
                         super("SuperSixteenRows", 16, 280, 512, bits)};
    const Shape many[] = {super("SuperMany", 45, 128, 256, bits),
                          super("SuperManyRagged", 37, 83, 512, bits),
                          // Several chunks of the sum; packed rows, and
                          // panels that are widened beside products.
                          super("SuperManyDeep", 24, 52, 8448, bits),
                          super("SuperPacked", 101, 72, 1280, bits),
                          super("SuperPackedPanels", 200, 256, 1280, bits)};
    auto add = [&](KernelCase one) {
      one.name = fmt::format("{}_{}bits", one.name, bits);
      cases.push_back(std::move(one));
    };
    for (const char *element : {"f32", "bf16"}) {
      for (const Shape &shape : few)
        add(make(shape, element, false, shape.rows > 1));
      for (const Shape &shape : many)
        add(make(shape, element, false, shape.rows % 2));
      add(makeRowSums(super("Super", 37, 80, 512, bits), element, false,
                      false));
      add(makeRowSums(super("SuperHeads", 3, 96, 256, bits), element, false,
                      true));
    }
    add(make(few[2], "f32", true, true));
    add(make(many[1], "bf16", true, false));
    add(makeRowSums(many[0], "bf16", true, false));
  }
}

void addRows(std::vector<KernelCase> &cases) {
  const Shape shapes[] = {
      {"Int8", 37, 75, 104, 8, 64},
      {"Int8Zeros", 5, 70, 105, 8, 32, true},
      {"Int4", 19, 33, 37, 4, 32},
      {"Int4Zeros", 7, 75, 130, 4, 64, true},
      {"Fp8", 19, 64, 105, 8, 64, false, true},
      // Several blocks of rows.
      {"Super4", 40, 75, 768, 4, 256, false, false, true},
      {"Super5", 19, 64, 512, 5, 256, false, false, true},
      {"Super6", 19, 33, 512, 6, 256, false, false, true},
  };
  for (const Shape &shape : shapes)
    for (const char *element : {"f32", "bf16"})
      cases.push_back(makeRows(shape, element));
  cases.push_back(makeRows({"Micropanels", 37, 75, 105, 16, 32}, "bf16"));
}

void addExperts(std::vector<KernelCase> &cases) {
  const Shape int8{"Int8", 0, 48, 72, 8, 32}, int4{"Int4", 0, 32, 160, 4, 64},
      int8Zeros{"Int8Zeros", 0, 16, 105, 8, 32, true},
      int4Zeros{"Int4Zeros", 0, 304, 96, 4, 32, true},
      int8Deep{"Int8Deep", 0, 80, 1152, 8, 64},
      fp8{"Fp8", 0, 48, 105, 8, 64, false, true},
      super5{"Super5", 0, 48, 512, 5, 256, false, false, true},
      super6{"Super6", 0, 80, 256, 6, 256, false, false, true},
      mxfp4{"Mxfp4", 0, 48, 160, 4, 32, false, true};
  std::vector<double> many(65, 6);
  std::fill(many.begin(), many.begin() + 9, 0);
  std::fill(many.begin() + 9, many.begin() + 40, 1);
  const Experts all[] = {
      // A token of few experts, one of many, and none.
      {"OneToken", {0, 0, 1, 1, 1, 2, 2}, 2, int8},
      {"OneOfMany", many, 6, int4},
      {"OneRow", {0, 0, 1, 1}, 1, int8Zeros},
      {"None", {0, 0, 0, 0}, 5, int4},
      // Some tokens, of which several have one expert; a prompt.
      {"Few", {0, 3, 3, 10, 12}, 14, int4Zeros},
      {"Few", {0, 7, 7, 13, 16}, 16, int8},
      {"Prompt", {0, 37, 38, 38, 101, 140}, 140, int8},
      {"Prompt", {0, 5, 90, 90, 190}, 200, int4Zeros},
      {"Prompt", {0, 0, 0, 130, 130}, 130, int8Zeros},
      {"Prompt", {0, 17, 150, 151, 260}, 270, int8Deep},
      {"OneToken", {0, 0, 1, 1, 1, 2, 2}, 2, fp8},
      {"Few", {0, 7, 7, 13, 16}, 16, fp8},
      {"Prompt", {0, 37, 38, 38, 101, 140}, 140, fp8},
      {"OneOfMany", many, 6, super5},
      {"Few", {0, 7, 7, 13, 16}, 16, super6},
      {"Few", {0, 3, 3, 10, 12}, 14, super5},
      {"Prompt", {0, 37, 38, 38, 101, 140}, 140, super5},
      {"Prompt", {0, 17, 150, 151, 260}, 270, super6},
      {"OneOfMany", many, 6, mxfp4},
      {"Few", {0, 3, 3, 10, 12}, 14, mxfp4},
      {"Prompt", {0, 37, 38, 38, 101, 140}, 140, mxfp4},
  };
  for (const char *element : {"f32", "bf16"})
    for (const Experts &experts : all)
      cases.push_back(make(experts, element));
  // Rows and columns are whole micropanels.
  const Shape wide{"Int8Wide", 0, 48, 96, 8, 32},
      high{"Int4High", 0, 192, 64, 4, 64, true};
  const Experts sums[] = {{"Few", {0, 0, 1, 1, 3}, 4, wide},
                          {"Prompt", {0, 37, 38, 38, 101, 140}, 150, wide},
                          {"Prompt", {0, 5, 90, 90, 190}, 200, high},
                          {"Prompt", {0, 5, 90, 90, 190}, 200, super6}};
  for (const char *element : {"f32", "bf16"})
    for (const Experts &experts : all)
      if (experts.matrix.layout().mxfp4())
        cases.push_back(makeUntransposed(experts, element, true));
  for (const char *element : {"f32", "bf16"})
    for (const Experts &experts : sums)
      cases.push_back(makeUntransposed(experts, element, false));
}

// Tokens of an expert's that rows of warps share.
KernelCase deepExperts() {
  return make({"OneRow", {0, 0, 3, 4, 4}, 5, {"Int4Deep", 0, 96, 640, 4, 64}},
              "bf16");
}

std::vector<KernelCase> all() {
  std::vector<KernelCase> cases;
  const Shape few[] = {{"Int8One", 1, 64, 64, 8, 32},
                       {"Int8OneRagged", 1, 75, 104, 8, 64},
                       {"Int8FiveRows", 5, 300, 96, 8, 32},
                       {"Int4One", 1, 64, 64, 4, 32},
                       {"Int4OneRagged", 1, 75, 105, 4, 64},
                       {"Int4SixteenRows", 16, 280, 200, 4, 128},
                       {"Int4ThreeRows", 3, 33, 37, 4, 32}};
  const Shape many[] = {{"Int8Many", 45, 128, 128, 8, 32},
                        {"Int8ManyRagged", 37, 70, 105, 8, 64},
                        {"Int4Many", 64, 96, 256, 4, 64},
                        {"Int4ManyRagged", 29, 83, 77, 4, 32},
                        // Several chunks of the sum, the last one ragged.
                        {"Int4ManyDeep", 24, 52, 8229, 4, 128}};
  for (const char *element : {"f32", "bf16"}) {
    for (const Shape &shape : few)
      cases.push_back(make(shape, element, false, shape.rows > 1));
    for (const Shape &shape : many)
      cases.push_back(make(shape, element, false, shape.rows % 2));
  }
  // Packed rows, in several chunks of the sum; the last tile of rows ragged.
  const Shape packed[] = {{"Int8Packed", 101, 72, 1152, 8, 64},
                          {"Int4Packed", 200, 300, 1120, 4, 32},
                          {"Int4PackedZeros", 77, 48, 576, 4, 64, true},
                          // Several panels a block, which are widened beside
                          // products; the last rows are no whole tile.
                          {"Int8PackedPanels", 101, 256, 1152, 8, 64},
                          {"Int8PackedPanelsTile", 96, 128, 896, 8, 32},
                          {"Int4PackedPanels", 200, 256, 1120, 4, 32},
                          {"Int8PackedPanelsZeros", 77, 128, 576, 8, 64, true},
                          {"Int4PackedPanelsRows", 540, 96, 128, 4, 32}};
  for (const Shape &shape : packed)
    cases.push_back(make(shape, "bf16", false, shape.rows % 2));
  const Shape zeros[] = {{"Int8OneZeros", 1, 75, 104, 8, 64, true},
                         {"Int8FiveRowsZeros", 5, 300, 96, 8, 32, true},
                         {"Int4OneRaggedZeros", 1, 75, 105, 4, 64, true},
                         {"Int4SixteenRowsZeros", 16, 280, 200, 4, 128, true},
                         {"Int8ManyRaggedZeros", 37, 70, 105, 8, 64, true},
                         {"Int4ManyRaggedZeros", 29, 83, 77, 4, 32, true},
                         {"Int4ManyDeepZeros", 24, 52, 8229, 4, 128, true}};
  for (const char *element : {"f32", "bf16"})
    for (const Shape &shape : zeros)
      cases.push_back(make(shape, element, false, shape.rows % 2));
  cases.push_back(make(zeros[5], "bf16", true, false));
  const Shape floats[] = {
      {"Fp8One", 1, 64, 64, 8, 32, false, true},
      {"Fp8OneRagged", 1, 75, 105, 8, 128, false, true},
      {"Fp8FiveRows", 5, 300, 96, 8, 32, false, true},
      {"Fp8SixteenRows", 16, 280, 200, 8, 64, false, true},
      {"Fp8Many", 45, 128, 128, 8, 128, false, true},
      {"Fp8ManyRagged", 37, 70, 105, 8, 64, false, true},
      {"Fp8Packed", 101, 72, 1152, 8, 64, false, true},
      {"Fp8PackedPanels", 77, 192, 1152, 8, 64, false, true}};
  for (const char *element : {"f32", "bf16"})
    for (const Shape &shape : floats)
      cases.push_back(make(shape, element, false, shape.rows % 2));
  cases.push_back(make(floats[1], "f32", true, true));
  for (KernelCase &made : micropanelCases())
    cases.push_back(std::move(made));
  addRows(cases);
  addExperts(cases);
  addNormalFloats(cases);
  addMxfp4(cases);
  addSuperBlocks(cases);
  cases.push_back(make(few[4], "f32", true, true));
  cases.push_back(make(many[3], "bf16", true, false));
  return cases;
}

} // namespace

std::vector<KernelCase> micropanelCases() {
  std::vector<KernelCase> cases;
  // The last one has several chunks of the sum.
  const Shape micropanels[] = {{"MicropanelsOne", 1, 64, 64, 16, 32},
                               {"MicropanelsOneRagged", 1, 75, 105, 16, 32},
                               {"MicropanelsOneDeep", 1, 52, 2048, 16, 32},
                               {"MicropanelsFiveRows", 5, 300, 96, 16, 32},
                               {"MicropanelsSixteenRows", 16, 280, 200, 16, 32},
                               {"MicropanelsMany", 45, 128, 128, 16, 32},
                               {"MicropanelsManyRagged", 37, 70, 105, 16, 32},
                               {"MicropanelsManyRows", 300, 52, 64, 16, 32},
                               {"MicropanelsManyDeep", 290, 52, 5230, 16, 32},
                               {"MicropanelsPacked", 100, 300, 1120, 16, 32},
                               {"MicropanelsPackedRows", 600, 70, 640, 16, 32}};
  for (const Shape &shape : micropanels)
    cases.push_back(make(shape, "bf16", false, shape.rows % 2));
  cases.push_back(make(micropanels[1], "bf16", true, false));
  cases.push_back(make(micropanels[6], "bf16", true, true));
  const Shape small{"", 0, 48, 64, 16, 32}, odd{"", 0, 80, 105, 16, 32},
      deep{"", 0, 304, 1152, 16, 32};
  // Few rows each; many, which are packed or, where terms are no whole
  // registers, copied; one expert that has more than others, or all.
  const Experts experts[] = {{"One", {0, 0, 1, 1, 2}, 2, small},
                             {"Few", {0, 7, 7, 13, 16}, 17, odd},
                             {"Few", {0, 3, 43, 43, 60}, 64, deep},
                             {"None", {0, 0, 0, 0}, 70, small},
                             {"Two", {0, 3, 40}, 40, small},
                             {"Many", {0, 37, 38, 38, 101, 140}, 140, odd},
                             {"Many", {0, 0, 33, 180, 399}, 400, small},
                             {"Many", {0, 16, 33, 129, 250}, 252, deep},
                             {"All", {0, 0, 1200, 1200}, 1200, small}};
  for (const Experts &each : experts)
    cases.push_back(makeMicropanels(each));
  return cases;
}

const std::vector<KernelCase> &quantCases() {
  static const std::vector<KernelCase> cases = all();
  return cases;
}

std::vector<KernelCase> largeQuantCases() {
  const Shape shapes[] = {
      {"Int8OneOfModel", 1, 1024, 4096, 8, 32, true},
      {"Int4OneOfModel", 1, 4096, 4096, 4, 128},
      {"Int8EightOfModel", 8, 4096, 4096, 8, 32, true},
      {"Int4EightOfModel", 8, 4096, 4096, 4, 128, true},
      {"Int8ManyOfModel", 512, 4096, 4096, 8, 32, true},
      {"Int4ManyOfModel", 512, 4096, 4096, 4, 128, true},
      {"Fp8OneOfModel", 1, 4096, 4096, 8, 128, false, true},
      {"Fp8ManyOfModel", 512, 4096, 4096, 8, 32, false, true}};
  std::vector<KernelCase> cases;
  for (const Shape &shape : shapes)
    cases.push_back(make(shape, "bf16", false, true));
  return cases;
}

// Weights are multiplied as they are, however many rows there are; but for sums
// over the matrix's rows, where they are scaled and, in bf16, rounded before.
std::vector<KernelCase> gpuQuantCases() {
  std::vector<KernelCase> cases;
  // Enough tiles for the large one.
  cases.push_back(
      make({"Int4Large", 1280, 2048, 64, 4, 32, true}, "bf16", false, false));
  // Several chunks of the sum, which rows of warps share; the last one ragged.
  const Shape deep[] = {
      {"Int4OneDeepZeros", 1, 75, 1120, 4, 64, true},
      {"Int8ThreeRowsDeep", 3, 70, 2085, 8, 32},
      {"Int8SixteenRowsDeepZeros", 16, 280, 1152, 8, 128, true},
      {"Int4SixteenRowsDeep", 16, 40, 777, 4, 256},
      {"Fp8OneDeep", 1, 75, 1120, 8, 64, false, true},
      {"Fp8SixteenRowsDeep", 16, 280, 1152, 8, 128, false, true}};
  for (const Shape &shape : deep)
    cases.push_back(make(shape, "bf16", false, shape.rows > 3));
  cases.push_back(deepExperts());
  for (const KernelCase &one : quantCases())
    if (one.name.find("Micropanels") == std::string::npos &&
        one.name.find("Nf4") == std::string::npos &&
        one.name.find("Super") == std::string::npos &&
        one.name.find("Mxfp4") == std::string::npos &&
        one.name.find("Lookup") == std::string::npos)
      cases.push_back(one);
  // Heads that are parts of a group; few rows; terms that are no whole chunks.
  for (const Shape &shape : {Shape{"Int4Heads", 70, 48, 192, 4, 64},
                             Shape{"Int8FewHeads", 5, 112, 128, 8, 128, true},
                             Shape{"Int4Few", 9, 1040, 160, 4, 32, true}})
    cases.push_back(
        makeRowSums(shape, "bf16", shape.rows == 70, shape.rows != 9));
  for (KernelCase &one : cases)
    if (one.name.find("RowSums") == std::string::npos ||
        one.name.find("_f32") != std::string::npos)
      one.tolerance = 1e-5;
  return cases;
}

} // namespace tessera::testing
