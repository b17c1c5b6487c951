#include "test/passes/sharding/OpCases.h"
#include <optional>

namespace tessera::testing {
namespace {

// @f of `arguments`, called %0, %1, …, that returns the results of `op`; "T<"
// stands for "tensor<".
std::string function(const std::vector<std::string> &arguments,
                     const std::string &op,
                     const std::vector<std::string> &results,
                     const std::string &constants = "") {
  std::string in, out, values;
  for (size_t i = 0; i < arguments.size(); ++i)
    in += (i ? ", %a" : "%a") + std::to_string(i) + ": T<" + arguments[i] + ">";
  for (size_t i = 0; i < results.size(); ++i) {
    out += (i ? ", T<" : "T<") + results[i] + ">";
    values += (i ? ", %r#" : "%r#") + std::to_string(i);
  }
  std::string text = "func.func @f(" + in + ") -> (" + out + ") {\n" +
                     constants + "\n%r:" + std::to_string(results.size()) +
                     " = graph." + op + "\nreturn " + values + " : " + out +
                     "\n}";
  for (size_t at; (at = text.find("T<")) != std::string::npos;)
    text.replace(at, 2, "tensor<");
  return text;
}

OpCase unary(const std::string &op, double low = -4, double high = 4) {
  return {function({"5x6xf64"}, op + " : T<5x6xf64>", {"5x6xf64"}), low, high};
}

OpCase binary(const std::string &op, const std::string &element = "f64",
              double low = -4, double high = 4) {
  std::string type = "7x4x" + element;
  return {function({type, type}, op + " %a0, %a1 : T<" + type + ">", {type}),
          low, high};
}

// A view or a reduction of one tensor.
OpCase view(const std::string &op, const std::string &from,
            const std::string &to) {
  return {function({from}, op + " : T<" + from + "> -> T<" + to + ">", {to})};
}

OpCase einsum(const std::string &equation, const std::string &lhs,
              const std::string &rhs, const std::string &out) {
  return {function({lhs, rhs},
                   "einsum \"" + equation + "\" %a0, %a1 : (T<" + lhs +
                       ">, T<" + rhs + ">) -> T<" + out + ">",
                   {out})};
}

OpCase grouped(const std::string &op, const std::string &attrs,
               const std::string &lhs, const std::string &rhs,
               const std::vector<double> &groups, const std::string &out) {
  std::string ids = std::to_string(groups.size()) + "xi32";
  OpCase made{function({lhs, rhs, ids},
                       "grouped_" + op + " %a0, %a1 groups %a2 " + attrs +
                           " : (T<" + lhs + ">, T<" + rhs + ">, T<" + ids +
                           ">) -> T<" + out + ">",
                       {out})};
  made.indices = {groups};
  return made;
}

// Of four tokens with two rows each, of which some go nowhere.
OpCase moved(const std::string &op, const std::string &from,
             const std::string &to, bool weighted) {
  std::vector<std::string> types{from, "4x2xi32"};
  if (weighted)
    types.emplace_back("4x2xf64");
  std::string all;
  for (const std::string &type : types)
    all += (all.empty() ? "T<" : ", T<") + type + ">";
  OpCase made{function(types,
                       op + " %a0 slots %a1 " +
                           (weighted ? "weights %a2 " : "") + ": (" + all +
                           ") -> T<" + to + ">",
                       {to})};
  made.indices = {{4, 0, -1, 2, 5, -1, 1, 6}};
  return made;
}

OpCase dotRows(const std::string &rows) {
  OpCase made{function({"4x5xf64", rows, "4x2xi32"},
                       "dot_rows %a0, %a1 slots %a2 : (T<4x5xf64>, T<" + rows +
                           ">, T<4x2xi32>) -> T<4x2xf64>",
                       {"4x2xf64"})};
  made.indices = {{4, 0, -1, 2, 5, -1, 1, 6}};
  return made;
}

// Rows of four tokens, two each, in two groups of five and three.
OpCase exchanged(const std::string &op, const std::vector<std::string> &out) {
  std::string types;
  for (const std::string &type : out)
    types += (types.empty() ? "T<" : ", T<") + type + ">";
  OpCase made{function({"8x5xf64", "4x2xi32", "3xi32"},
                       op +
                           " %a0 slots %a1 groups %a2 : (T<8x5xf64>, "
                           "T<4x2xi32>, T<3xi32>) -> (" +
                           types + ")",
                       out)};
  made.indices = {{4, 0, 3, 2, 5, 7, 1, 6}, {0, 5, 8}};
  return made;
}

/// Types of one attention: of `tokens` queries, and as many keys or those after
/// a given start.
struct AttentionTypes {
  AttentionTypes(int64_t tokens, std::optional<int64_t> keys) : tokens(tokens) {
    std::string t = std::to_string(tokens);
    q = "3x" + t + "x6x4xf64";
    k = "3x" + std::to_string(keys.value_or(tokens)) + "x3x4xf64";
    lse = "3x6x" + t + "xf32";
    if (keys)
      startType = ", T<i32>";
  }
  // The last argument, if there is a start.
  std::string startAt(size_t argument) const {
    return startType.empty() ? "" : " start %a" + std::to_string(argument);
  }
  std::vector<std::string> with(std::vector<std::string> types) const {
    if (!startType.empty())
      types.emplace_back("i32");
    return types;
  }
  // The operand that keeps documents apart, as argument `argument`.
  std::string firstAt(size_t argument) const {
    return " first %a" + std::to_string(argument) + " : T<3x" +
           std::to_string(tokens) + "xi32>";
  }
  // That and, as the next argument, where prompts end.
  std::string lastAt(size_t argument) const {
    return firstAt(argument) + " last %a" + std::to_string(argument + 1) +
           " : T<3x" + std::to_string(tokens) + "xi32>";
  }
  int64_t tokens;
  std::string q, k, lse, startType;
};

// Where documents of 1 to 3 tokens begin, in three sequences.
std::vector<double> documentStarts(int64_t tokens) {
  std::vector<double> starts;
  for (int64_t sequence = 0; sequence < 3; ++sequence)
    for (int64_t t = 0; t < tokens; ++t)
      starts.push_back(static_cast<double>(t - t % (sequence + 1)));
  return starts;
}

/// Where longer documents begin, and where their prompts end: before the last
/// token.
std::vector<std::vector<double>> prompts(int64_t tokens) {
  std::vector<double> starts, ends;
  for (int64_t length : {2, 4, 6})
    for (int64_t t = 0; t < tokens; ++t) {
      const int64_t start = t - t % length;
      starts.push_back(static_cast<double>(start));
      ends.push_back(
          static_cast<double>(std::min(start + length - 2, tokens - 1)));
    }
  return {starts, ends};
}

// Numbers that a softmax weighs are not whole, and weights of parts are.
OpCase attention(const std::string &attrs, int64_t tokens,
                 std::optional<int64_t> keys = std::nullopt) {
  AttentionTypes t(tokens, keys);
  OpCase made{function(t.with({t.q, t.k, t.k}),
                       "attention %a0, %a1, %a2" + t.startAt(3) +
                           " scale 0.25 {" + attrs + "} : T<" + t.q + ">, T<" +
                           t.k + ">, T<" + t.k + ">" + t.startType + " -> T<" +
                           t.q + ">, T<" + t.lse + ">",
                       {t.q, t.lse})};
  made.rounds = true;
  return made;
}

OpCase sinksAttention(const std::string &attrs, int64_t tokens) {
  AttentionTypes t(tokens, std::nullopt);
  OpCase made{function({t.q, t.k, t.k, "6xf32"},
                       "attention %a0, %a1, %a2 sinks %a3 : T<6xf32> scale "
                       "0.25 {" +
                           attrs + "} : T<" + t.q + ">, T<" + t.k + ">, T<" +
                           t.k + "> -> T<" + t.q + ">, T<" + t.lse + ">",
                       {t.q, t.lse})};
  made.rounds = true;
  return made;
}

OpCase packedAttention(const std::string &attrs, int64_t tokens) {
  AttentionTypes t(tokens, std::nullopt);
  OpCase made{function({t.q, t.k, t.k, "3x" + std::to_string(tokens) + "xi32"},
                       "attention %a0, %a1, %a2" + t.firstAt(3) +
                           " scale 0.25 {" + attrs + "} : T<" + t.q + ">, T<" +
                           t.k + ">, T<" + t.k + "> -> T<" + t.q + ">, T<" +
                           t.lse + ">",
                       {t.q, t.lse})};
  made.rounds = true;
  made.indices = {documentStarts(tokens)};
  return made;
}

OpCase packedAttentionGrad(const std::string &attrs, int64_t tokens) {
  AttentionTypes t(tokens, std::nullopt);
  OpCase made{function(
      {t.q, t.k, t.k, t.q, t.lse, t.q, "3x" + std::to_string(tokens) + "xi32"},
      "attention_grad %a0, %a1, %a2, %a3, %a4, %a5" + t.firstAt(6) +
          " scale 0.25 {" + attrs + "} : T<" + t.q + ">, T<" + t.k + ">, T<" +
          t.k + ">, T<" + t.q + ">, T<" + t.lse + ">, T<" + t.q + ">",
      {t.q, t.k, t.k})};
  made.rounds = true;
  made.indices = {documentStarts(tokens)};
  return made;
}

OpCase promptsAttention(const std::string &attrs, int64_t tokens) {
  AttentionTypes t(tokens, std::nullopt);
  const std::string keys = "3x" + std::to_string(tokens) + "xi32";
  OpCase made{function({t.q, t.k, t.k, keys, keys},
                       "attention %a0, %a1, %a2" + t.lastAt(3) +
                           " scale 0.25 {" + attrs + "} : T<" + t.q + ">, T<" +
                           t.k + ">, T<" + t.k + "> -> T<" + t.q + ">, T<" +
                           t.lse + ">",
                       {t.q, t.lse})};
  made.rounds = true;
  made.indices = prompts(tokens);
  return made;
}

OpCase promptsAttentionGrad(const std::string &attrs, int64_t tokens) {
  AttentionTypes t(tokens, std::nullopt);
  const std::string keys = "3x" + std::to_string(tokens) + "xi32";
  OpCase made{function({t.q, t.k, t.k, t.q, t.lse, t.q, keys, keys},
                       "attention_grad %a0, %a1, %a2, %a3, %a4, %a5" +
                           t.lastAt(6) + " scale 0.25 {" + attrs + "} : T<" +
                           t.q + ">, T<" + t.k + ">, T<" + t.k + ">, T<" + t.q +
                           ">, T<" + t.lse + ">, T<" + t.q + ">",
                       {t.q, t.k, t.k})};
  made.rounds = true;
  made.indices = prompts(tokens);
  return made;
}

OpCase attentionGrad(const std::string &attrs, int64_t tokens,
                     std::optional<int64_t> keys = std::nullopt) {
  AttentionTypes t(tokens, keys);
  OpCase made{function(t.with({t.q, t.k, t.k, t.q, t.lse, t.q}),
                       "attention_grad %a0, %a1, %a2, %a3, %a4, %a5" +
                           t.startAt(6) + " scale 0.25 {" + attrs + "} : T<" +
                           t.q + ">, T<" + t.k + ">, T<" + t.k + ">, T<" + t.q +
                           ">, T<" + t.lse + ">, T<" + t.q + ">" + t.startType,
                       {t.q, t.k, t.k})};
  made.rounds = true;
  return made;
}

std::multimap<std::string, OpCase> elementwise() {
  std::multimap<std::string, OpCase> cases{
      {"gelu", unary("gelu %a0 tanh")},
      {"gelu_grad",
       {function({"5x6xf64", "5x6xf64"}, "gelu_grad %a0, %a1 erf : T<5x6xf64>",
                 {"5x6xf64"})}},
      {"and", binary("and", "i1")},
      {"or", binary("or", "i32")},
      {"compare",
       {function({"7x4xf64", "7x4xf64"},
                 "compare %a0 lt %a1 : T<7x4xf64> -> T<7x4xi1>", {"7x4xi1"})}},
      {"select",
       {function({"7x4xi1", "7x4xf64", "7x4xf64"},
                 "select %a0, %a1, %a2 : T<7x4xi1>, T<7x4xf64>", {"7x4xf64"}),
        -4, 4, 2}},
      {"convert", view("convert %a0", "7x4xf32", "7x4xf64")},
      {"convert", view("convert %a0", "7x4xf64", "7x4xbf16")},
      {"convert", view("convert %a0", "7x4xi32", "7x4xf32")}};
  for (const char *op : {"neg", "abs", "exp", "tanh", "erf", "sin", "cos",
                         "sigmoid", "relu", "silu"})
    cases.emplace(op, unary(op + std::string(" %a0")));
  for (const char *op : {"log", "log1p", "sqrt", "rsqrt"})
    cases.emplace(op, unary(op + std::string(" %a0"), 1, 9));
  for (const char *op : {"add", "sub", "mul", "max", "min"})
    cases.emplace(op, binary(op));
  for (const char *op : {"div", "pow"})
    cases.emplace(op, binary(op, "f64", 1, 9));
  return cases;
}

std::multimap<std::string, OpCase> shapes() {
  return {
      {"constant",
       {function({}, "constant dense<1.5> : T<5x6xf64>", {"5x6xf64"})}},
      {"constant",
       {function({}, "constant dense<[1, 2, 3]> : T<3xi32>", {"3xi32"})}},
      {"iota", {function({}, "iota dim 1 : T<5x6xi32>", {"5x6xi32"})}},
      {"reshape", view("reshape %a0", "2x6x5xf64", "12x5xf64")},
      {"reshape", view("reshape %a0", "5x18xf64", "5x3x6xf64")},
      {"reshape", view("reshape %a0", "4x6xf64", "6x4xf64")},
      {"reshape", view("reshape %a0", "6x1x4xf64", "3x8xf64")},
      {"transpose", view("transpose %a0 [2, 0, 1]", "2x3x5xf64", "5x2x3xf64")},
      {"broadcast",
       view("broadcast %a0 dims [1, 2]", "3x2xf64", "4x3x2x5xf64")},
      {"broadcast", view("broadcast %a0 dims []", "f64", "4x3xf64")},
      {"slice", view("slice %a0 [1, 0]", "4x5xf64", "2x5xf64")},
      {"slice", view("slice %a0 [0, 10]", "4x15xf64", "4x5xf64")},
      {"pad", view("pad %a0 low [1, 0]", "2x5xf64", "4x5xf64")},
      {"concat",
       {function({"2x3xf64", "2x1xf64"},
                 "concat %a0, %a1 dim 1 : (T<2x3xf64>, T<2x1xf64>) -> "
                 "T<2x4xf64>",
                 {"2x4xf64"})}},
      {"concat",
       {function({"4x5xf64", "4x5xf64", "4x5xf64"},
                 "concat %a0, %a1, %a2 dim 1 : (T<4x5xf64>, T<4x5xf64>, "
                 "T<4x5xf64>) -> T<4x15xf64>",
                 {"4x15xf64"})}},
      {"dynamic_slice",
       {function({"5x6x4xf64", "i32"},
                 "dynamic_slice %a0[%a1] : T<5x6x4xf64>, T<i32> -> T<6x4xf64>",
                 {"6x4xf64"})}},
      {"dynamic_update",
       {function({"6x4xf64", "i32", "5x6x4xf64"},
                 "dynamic_update %a0 into %a2[%a1] : T<6x4xf64>, T<i32> -> "
                 "T<5x6x4xf64>",
                 {"5x6x4xf64"})}}};
}

std::multimap<std::string, OpCase> contractions() {
  return {
      {"einsum", einsum("btk,kn->btn", "3x2x7xf64", "7x5xf64", "3x2x5xf64")},
      {"einsum", einsum("btkgd,bskd->bkgts", "2x3x2x2x4xf64", "2x3x2x4xf64",
                        "2x2x2x3x3xf64")},
      {"einsum", einsum("ij,ji->", "3x4xf64", "4x3xf64", "f64")},
      {"einsum", einsum("btk,kn->btn", "3x2x7xbf16", "7x5xbf16", "3x2x5xf32")},
      {"reduce", view("reduce %a0 sum dims [0, 2]", "2x3x5xf64", "3xf64")},
      {"reduce", view("reduce %a0 max dims [1]", "4x5xf64", "4xf64")},
      {"reduce", view("reduce %a0 min dims [0]", "4x5xf64", "5xf64")},
      {"embedding",
       {function({"7x4xf64", "2x5xi32"},
                 "embedding %a0, %a1 : (T<7x4xf64>, T<2x5xi32>) -> "
                 "T<2x5x4xf64>",
                 {"2x5x4xf64"}),
        -4, 4, 7}},
      {"scatter_add",
       {function({"3x5xi32", "3x5x4xf64"},
                 "scatter_add %a1 at %a0 onto %zero : T<3x5x4xf64>, "
                 "T<3x5xi32>, T<7x4xf64>",
                 {"7x4xf64"}, "%zero = graph.constant dense<0.0> : T<7x4xf64>"),
        -4, 4, 7}},
      {"scatter_add",
       {function({"7x4xf64", "5xi32", "5x4xf64"},
                 "scatter_add %a2 at %a1 onto %a0 : T<5x4xf64>, T<5xi32>, "
                 "T<7x4xf64>",
                 {"7x4xf64"}),
        -4, 4, 7}},
      {"random",
       {function({"i64"},
                 "random normal stream 1 seed %a0 step %a0 : T<i64>, T<i64> "
                 "-> T<6x4xf32>",
                 {"6x4xf32"})}},
      {"grouped_matmul",
       grouped("matmul", "", "9x4xf64", "3x4x5xf64", {0, 2, 2, 7}, "9x5xf64")},
      {"grouped_matmul", grouped("matmul", "{transposed}", "9x4xf64",
                                 "3x5x4xf64", {0, 2, 2, 7}, "9x5xf64")},
      {"grouped_matmul",
       grouped("matmul", "", "3x6x4xf64", "3x4x5xf64", {6, 0, 4}, "3x6x5xf64")},
      {"grouped_outer",
       grouped("outer", "", "9x4xf64", "9x5xf64", {0, 2, 2, 7}, "3x4x5xf64")},
      {"grouped_outer",
       grouped("outer", "", "3x6x4xf64", "3x6x5xf64", {6, 0, 4}, "3x4x5xf64")}};
}

OpCase stateSpaceScan(int groups) {
  const std::string vectors = "2x5x" + std::to_string(groups) + "x3xf64";
  return {function(
      {"2x5x4x6xf64", "2x5x4xf64", "4xf64", vectors, vectors, "4xf64", "4xf64",
       "2xi32", "2x4x6x3xf64"},
      "state_space_scan %a0 step %a1 rate %a2 write %a3 read %a4 skip %a5 bias "
      "%a6 counts %a7 from %a8 chunk 2 : (T<2x5x4x6xf64>, T<2x5x4xf64>, "
      "T<4xf64>, T<" +
          vectors + ">, T<" + vectors +
          ">, T<4xf64>, T<4xf64>, T<2xi32>, T<2x4x6x3xf64>) -> "
          "(T<2x5x4x6xf64>, T<2x4x6x3xf64>)",
      {"2x5x4x6xf64", "2x4x6x3xf64"})};
}

std::multimap<std::string, OpCase> composites() {
  auto head = [](OpCase result) {
    result.integers = 7, result.rounds = true;
    return result;
  };
  auto lossGrad = [&](const std::string &more) {
    return head({function(
        {"6x4xf64", "7x4xf64", "6xi32", "f32"},
        "linear_cross_entropy_grad %a0, %a1, %a2, %a3 {" + more +
            "ignore = 1 : i64} : (T<6x4xf64>, T<7x4xf64>, T<6xi32>, T<f32>) "
            "-> (T<f32>, T<6x4xf64>, T<7x4xf64>)",
        {"f32", "6x4xf64", "7x4xf64"})});
  };
  auto loss = [&](const std::string &more) {
    return head({function(
        {"6x4xf64", "7x4xf64", "6xi32"},
        "linear_cross_entropy %a0, %a1, %a2 {" + more +
            "ignore = 1 : i64} : T<6x4xf64>, T<7x4xf64>, T<6xi32> -> T<f32>",
        {"f32"})});
  };
  const OpCase losses = head({function(
      {"6x4xf64", "7x4xf64", "6xi32"},
      "linear_cross_entropy %a0, %a1, %a2 {ignore = 1 : i64} : T<6x4xf64>, "
      "T<7x4xf64>, T<6xi32> -> T<6xf32>",
      {"6xf32"})});
  const OpCase lossesGrad = head({function(
      {"6x4xf64", "7x4xf64", "6xi32", "6xf32"},
      "linear_cross_entropy_grad %a0, %a1, %a2, %a3 {ignore = 1 : i64} : "
      "(T<6x4xf64>, T<7x4xf64>, T<6xi32>, T<6xf32>) "
      "-> (T<f32>, T<6x4xf64>, T<7x4xf64>)",
      {"f32", "6x4xf64", "7x4xf64"})});
  const OpCase several = head({function(
      {"6x4xf64", "7x4xf64", "6x3xi32"},
      "linear_cross_entropy %a0, %a1, %a2 {ignore = 1 : i64} : T<6x4xf64>, "
      "T<7x4xf64>, T<6x3xi32> -> T<6x3xf32>",
      {"6x3xf32"})});
  const OpCase severalGrad = head({function(
      {"6x4xf64", "7x4xf64", "6x3xi32", "6x3xf32"},
      "linear_cross_entropy_grad %a0, %a1, %a2, %a3 {ignore = 1 : i64} : "
      "(T<6x4xf64>, T<7x4xf64>, T<6x3xi32>, T<6x3xf32>) "
      "-> (T<f32>, T<6x4xf64>, T<7x4xf64>)",
      {"f32", "6x4xf64", "7x4xf64"})});
  return {
      {"softmax", unary("softmax %a0")},
      {"layer_norm",
       {function({"2x3x5xf64", "5xf64", "5xf64"},
                 "layer_norm %a0, %a1, %a2 eps 0.5 : T<2x3x5xf64>, T<5xf64>, "
                 "T<5xf64>",
                 {"2x3x5xf64"})}},
      {"rms_norm",
       {function({"2x3x5xf64", "5xf64"},
                 "rms_norm %a0, %a1 eps 0.5 : T<2x3x5xf64>, T<5xf64>",
                 {"2x3x5xf64"})}},
      {"rope",
       {function({"3x5x2x4xf64"},
                 "rope %a0 {frequencies = array<f64: 1.0, 0.5>} : "
                 "T<3x5x2x4xf64>",
                 {"3x5x2x4xf64"})}},
      {"rope",
       {function({"3x5x2x4xf64", "3x5xi32"},
                 "rope %a0 at %a1 {frequencies = array<f64: 1.0, 0.5>, "
                 "inverse} : T<3x5x2x4xf64>, T<3x5xi32>",
                 {"3x5x2x4xf64"})}},
      {"dropout",
       {function({"4x5xf64", "i64"},
                 "dropout %a0 rate 0.3 stream 4 seed %a1 step %a1 offset %a1 "
                 ": T<4x5xf64>, T<i64>, T<i64>, T<i64>",
                 {"4x5xf64"})}},
      {"attention", attention("causal", 5)},
      {"attention", attention("causal", 6)},
      {"attention", attention("causal, window = 2 : i64", 6)},
      {"attention", sinksAttention("causal", 6)},
      {"attention", sinksAttention("causal", 5)},
      {"attention", attention("causal, cap = 1.5 : f64", 6)},
      {"attention", attention("window = 3 : i64", 6)},
      {"attention", attention("causal", 5, 7)},
      {"attention", attention("causal, window = 3 : i64", 4, 6)},
      {"attention", packedAttention("causal", 6)},
      {"attention", packedAttention("causal, window = 2 : i64", 6)},
      {"attention", packedAttention("causal", 5)},
      {"attention", promptsAttention("causal", 6)},
      {"attention", promptsAttention("causal, window = 2 : i64", 6)},
      {"attention", promptsAttention("causal", 5)},
      {"attention_grad", promptsAttentionGrad("causal", 6)},
      {"attention_grad", promptsAttentionGrad("causal, window = 2 : i64", 6)},
      {"attention_grad", promptsAttentionGrad("causal", 5)},
      {"attention_grad", packedAttentionGrad("causal", 6)},
      {"attention_grad", packedAttentionGrad("causal, window = 2 : i64", 6)},
      {"attention_grad", packedAttentionGrad("causal", 5)},
      {"attention_grad", attentionGrad("causal", 5)},
      {"attention_grad", attentionGrad("causal", 6)},
      {"attention_grad", attentionGrad("causal, cap = 1.5 : f64", 6)},
      {"attention_grad", attentionGrad("causal, window = 2 : i64", 6)},
      {"attention_grad", attentionGrad("", 6)},
      {"attention_grad", attentionGrad("causal", 5, 7)},
      {"linear_cross_entropy", loss("")},
      {"linear_cross_entropy", loss("cap = 0.75 : f64, ")},
      {"linear_cross_entropy", losses},
      {"linear_cross_entropy_grad", lossesGrad},
      {"linear_cross_entropy", several},
      {"linear_cross_entropy_grad", severalGrad},
      {"linear_cross_entropy_grad", lossGrad("")},
      {"linear_cross_entropy_grad", lossGrad("cap = 0.75 : f64, ")}};
}

std::multimap<std::string, OpCase> routing() {
  OpCase rows{function({"8x6xf64", "2x2xi32", "2x2x6xf64"},
                       "scatter_rows %a2 at %a1 into %a0 : T<2x2x6xf64>, "
                       "T<2x2xi32>, T<8x6xf64>",
                       {"8x6xf64"})};
  rows.indices = {{5, -1, 0, 3}};
  std::string q = "3x2x6x4xf64", k = "5x2x3x4xf64";
  OpCase paged{function({q, k, k, "3x2xi32", "3xi32", "3xi32"},
                        "paged_attention %a0, %a1, %a2 pages %a3 starts %a4 "
                        "lengths %a5 scale 0.5 : T<" +
                            q + ">, T<" + k + ">, T<3x2xi32>, T<3xi32>",
                        {q})};
  paged.indices = {{0, 1, 4, 2, 3, 0}, {1, 0, 0}, {3, 2, 0}};
  std::string one = "5x2x1x4xf64";
  OpCase oneHead{function({q, one, one, "3x2xi32", "3xi32", "3xi32"},
                          "paged_attention %a0, %a1, %a2 pages %a3 starts %a4 "
                          "lengths %a5 scale 0.5 : T<" +
                              q + ">, T<" + one + ">, T<3x2xi32>, T<3xi32>",
                          {q})};
  oneHead.indices = paged.indices;
  OpCase sampled{function(
      {"4x9xf32", "4x1xi32", "4x1xi32", "4x1x4xf32", "4x2xf32", "4x4xi32"},
      "sample %a0 allowed %a1 change %a2 by %a3 options %a4 limits %a5 : "
      "T<4x9xf32>, T<4x1xi32>, T<4x1xi32>, T<4x1x4xf32>, T<4x2xf32>, "
      "T<4x4xi32> -> T<4xi32>",
      {"4xi32"})};
  sampled.indices = {{-1, 5, 511, -1}, {3, -1, 0, 8}};
  return {
      {"top_k",
       {function({"3x4x5xf64"}, "top_k %a0 : (T<3x4x5xf64>) -> T<3x4x2xi32>",
                 {"3x4x2xi32"})}},
      {"take_along_axis",
       {function({"3x2x5xf64", "3x2x4xi32"},
                 "take_along_axis %a0 at %a1 : (T<3x2x5xf64>, T<3x2x4xi32>) -> "
                 "T<3x2x4xf64>",
                 {"3x2x4xf64"}),
        -4, 4, 6}},
      {"rank_in_group",
       {function({"3x8xi32", "3x8xf64"},
                 "rank_in_group %a0 by %a1 groups 4 : (T<3x8xi32>, "
                 "T<3x8xf64>) -> T<3x8xi32>",
                 {"3x8xi32"})}},
      {"rank_in_group",
       {function({"3x8xi32"},
                 "rank_in_group %a0 groups 4 : (T<3x8xi32>) -> T<3x8xi32>",
                 {"3x8xi32"})}},
      {"group_rows",
       {function({"5x2xi32"},
                 "group_rows %a0 : (T<5x2xi32>) -> (T<5xi32>, T<5x2xi32>)",
                 {"5xi32", "5x2xi32"})}},
      {"dispatch_rows", moved("dispatch_rows", "4x5xf64", "7x5xf64", false)},
      {"dispatch_rows", moved("dispatch_rows", "4x5xf64", "7x5xf64", true)},
      {"dispatch_rows", moved("dispatch_rows", "4x5xf64", "8x5xf64", true)},
      {"combine_rows", moved("combine_rows", "7x5xf64", "4x5xf64", false)},
      {"combine_rows", moved("combine_rows", "7x5xf64", "4x5xf64", true)},
      {"combine_rows", moved("combine_rows", "8x5xf64", "4x5xf64", true)},
      {"dot_rows", dotRows("7x5xf64")},
      {"dot_rows", dotRows("8x5xf64")},
      {"send_rows", exchanged("send_rows", {"8x5xf64", "3xi32"})},
      {"return_rows", exchanged("return_rows", {"8x5xf64"})},
      {"scatter_rows", rows},
      {"dequantize",
       {function({"2x16x16xi32", "2x4x16xf16"},
                 "dequantize %a0, %a1 bits 4 group 32 : T<2x16x16xi32>, "
                 "T<2x4x16xf16> -> T<32x128xf32>",
                 {"32x128xf32"})}},
      {"dequantize",
       {function({"4x32x16xi32", "4x4x16xf16"},
                 "dequantize %a0, %a1 bits 8 group 64 zeros transposed : "
                 "T<4x32x16xi32>, T<4x4x16xf16> -> T<128x64xf32>",
                 {"128x64xf32"})}},
      // A stack of matrices; then rows and columns that are no whole ones.
      {"dequantize",
       {function({"6x24x16xi32", "6x3x16xf16"},
                 "dequantize %a0, %a1 bits 8 group 32 : T<6x24x16xi32>, "
                 "T<6x3x16xf16> -> T<3x32x96xf32>",
                 {"3x32x96xf32"})}},
      {"dequantize",
       {function({"3x64x16xbf16"},
                 "dequantize %a0 bits 16 group 32 : T<3x64x16xbf16> -> "
                 "T<40x50xbf16>",
                 {"40x50xbf16"})}},
      {"dequantize",
       {function({"4x64x16xbf16"},
                 "dequantize %a0 bits 16 group 32 : T<4x64x16xbf16> -> "
                 "T<64x64xbf16>",
                 {"64x64xbf16"})}},
      {"quantize_rows",
       {function({"4x6x8xf32"},
                 "quantize_rows %a0 : T<4x6x8xf32> -> T<4x6x8xi8>, "
                 "T<4x6x1xf32>",
                 {"4x6x8xi8", "4x6x1xf32"})}},
      {"dequantize_rows",
       {function({"4x6x8xi8", "4x6x1xf32"},
                 "dequantize_rows %a0, %a1 : T<4x6x8xi8>, T<4x6x1xf32> -> "
                 "T<4x6x8xf32>",
                 {"4x6x8xf32"})}},
      {"sample", sampled},
      // Half is exact.
      {"discounted_sum",
       {function({"3x4x5xf64", "3x4x5xi32"},
                 "discounted_sum %a0, %a1 discount 0.5 : T<3x4x5xf64>, "
                 "T<3x4x5xi32>",
                 {"3x4x5xf64"})}},
      {"segment_sum", view("segment_sum %a0", "4x6x5xf64", "4x6x5x5xf64")},
      {"state_space_scan", stateSpaceScan(2)},
      {"state_space_scan", stateSpaceScan(1)},
      {"paged_attention", paged},
      {"paged_attention", oneHead}};
}

} // namespace

const std::multimap<std::string, OpCase> &opCases() {
  static const std::multimap<std::string, OpCase> all = [] {
    std::multimap<std::string, OpCase> cases = elementwise();
    for (auto family : {shapes(), contractions(), composites(), routing()})
      cases.merge(family);
    return cases;
  }();
  return all;
}

} // namespace tessera::testing
