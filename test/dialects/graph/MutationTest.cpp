// Hostile MLIR: mutants of the round-trip test are parsed and verified, and
// whatever verifies is folded, costed, decomposed and differentiated. Nothing
// crashes, and what comes out verifies again. A mutant that crashes is left in
// the temporary folder as graph-mutant.mlir.
#include "mlir/IR/Diagnostics.h"
#include "mlir/IR/Verifier.h"
#include "mlir/Pass/PassManager.h"
#include "mlir/Transforms/Passes.h"
#include "test/support/GraphTesting.h"
#include "gtest/gtest.h"
#include <fstream>
#include <sstream>

using namespace mlir;
using namespace tessera::graph;
using namespace tessera::testing;

namespace {

std::string read(const std::string &path) {
  std::ifstream file(path);
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

// Numbers, words and single characters, with the space before them.
std::vector<std::string> tokensOf(const std::string &text) {
  std::vector<std::string> tokens;
  auto kindOf = [](char c) {
    return std::isdigit(c)                           ? 1
           : std::isalpha(c) || c == '_' || c == '.' ? 2
                                                     : 3;
  };
  for (size_t i = 0; i < text.size();) {
    size_t end = i;
    while (end < text.size() && std::isspace(text[end]))
      ++end;
    int kind = end < text.size() ? kindOf(text[end]) : 0;
    size_t start = end;
    while (end < text.size() && kindOf(text[end]) == kind &&
           !std::isspace(text[end]) && (kind != 3 || end == start))
      ++end;
    tokens.push_back(text.substr(i, end - i));
    i = end;
  }
  return tokens;
}

const char *const kNumbers[] = {"0",
                                "1",
                                "2",
                                "3",
                                "7",
                                "-1",
                                "100",
                                "4294967296",
                                "9223372036854775807",
                                "-9223372036854775808",
                                "0x7FF0000000000000"};
const char *const kWords[] = {
    "f32",           "f64",    "bf16",      "i1",        "i32",
    "ui8",           "index",  "sum",       "max",       "tanh",
    "tensor",        "vector", "graph.add", "graph.neg", "graph.reshape",
    "graph.softmax", "?",      "sparse",    "%x",        "%q"};

template <size_t N>
std::string oneOf(const char *const (&choices)[N], std::mt19937_64 &engine) {
  return std::string(" ") + choices[engine() % N];
}

// One to three changes: another number, another word, a token gone, twice, or
// in place of another.
std::string mutate(std::vector<std::string> tokens, std::mt19937_64 &engine) {
  for (int changes = 1 + engine() % 3; changes > 0; --changes) {
    std::string &token = tokens[engine() % tokens.size()];
    bool isNumber = !token.empty() && std::isdigit(token.back());
    switch (engine() % (isNumber ? 4 : 5)) {
    case 0:
      token = isNumber ? oneOf(kNumbers, engine) : oneOf(kWords, engine);
      break;
    case 1:
      token = isNumber ? oneOf(kNumbers, engine).substr(1) : "";
      break;
    case 2:
      token += token;
      break;
    default:
      token = tokens[engine() % tokens.size()];
      break;
    }
  }
  std::string text;
  for (const std::string &token : tokens)
    text += token;
  return text;
}

// Everything that a pass may ask of an op.
void askEverything(ModuleOp module) {
  SmallVector<Operation *> ops;
  module.walk([&](Operation *op) { ops.push_back(op); });
  for (Operation *op : ops) {
    OpBuilder builder(op->getContext());
    builder.setInsertionPointAfter(op);
    if (auto costed = dyn_cast<Costed>(op)) {
      costed.getFlops();
      costed.getBytes();
    }
    if (auto fusable = dyn_cast<Fusable>(op))
      fusable.getClusterKind();
    if (auto differentiable = dyn_cast<Differentiable>(op))
      differentiable.buildVjp(builder, op->getResults());
    if (auto composite = dyn_cast<Decomposable>(op)) {
      builder.setInsertionPoint(op);
      composite.decompose(builder);
    }
  }
}

// Tensors are asked for their element count; beyond this the count overflows,
// which is no concern of the dialect's.
bool isSane(ModuleOp module) {
  bool sane = true;
  module.walk([&](Operation *op) {
    for (Type type : op->getResultTypes())
      sane &= !isa<RankedTensorType>(type) ||
              tessera::interpreter::isInterpretable(type);
    for (Type type : op->getOperandTypes())
      sane &= !isa<RankedTensorType>(type) ||
              tessera::interpreter::isInterpretable(type);
  });
  return sane;
}

TEST(GraphMutants, NeverCrash) {
  std::vector<std::string> tokens = tokensOf(read(
      std::string(TESSERA_SOURCE_DIR) + "/test/dialects/graph/roundtrip.mlir"));
  ASSERT_GT(tokens.size(), 1000u);
  ScopedDiagnosticHandler silence(&context(),
                                  [](Diagnostic &) { return success(); });
  PassManager passes(&context());
  passes.addPass(createCanonicalizerPass());
  passes.addPass(createCSEPass());
  std::mt19937_64 engine(20);
  int parsed = 0;
  for (int mutant = 0; mutant < 3000; ++mutant) {
    std::string text = mutate(tokens, engine);
    std::ofstream(::testing::TempDir() + "graph-mutant.mlir") << text;
    OwningOpRef<ModuleOp> module = parse(text);
    if (!module || !isSane(*module))
      continue;
    ++parsed;
    askEverything(*module);
    EXPECT_TRUE(succeeded(verify(*module))) << text;
    EXPECT_TRUE(succeeded(passes.run(*module))) << text;
  }
  // Mutants must not all die in the parser, nor all survive the verifiers.
  EXPECT_GT(parsed, 100);
  EXPECT_LT(parsed, 2000);
}

} // namespace
