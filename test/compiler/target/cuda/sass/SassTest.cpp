// The analysis of SASS on recorded text: Inputs/kernels.cu says what each
// kernel does, from which the expected numbers follow.
#include <fstream>
#include <iterator>
#include <random>

#include <gtest/gtest.h>

#include "compiler/target/cuda/sass/LatencyBound.h"
#include "compiler/target/cuda/sass/Parameters.h"

using namespace tessera;
using namespace tessera::sass;

namespace {

std::string recorded(const std::string &target) {
  std::ifstream file(std::string(TESSERA_SASS_INPUTS) + target + ".sass");
  return {std::istreambuf_iterator<char>(file), {}};
}

/// Kernels of each target.
class Recorded : public testing::TestWithParam<const char *> {
protected:
  Recorded() {
    auto parsed = parse(recorded(GetParam()));
    EXPECT_TRUE(parsed.ok()) << parsed.message();
    if (parsed.ok())
      functions = parsed.take();
  }
  const Function &find(std::string_view name) const {
    for (const Function &function : functions)
      if (function.name == name)
        return function;
    ADD_FAILURE() << "no function " << name;
    return functions.front();
  }
  /// The first warp of block 0.
  WarpTrace follow(std::string_view name) const {
    Surroundings around;
    around.threads = 128;
    around.blocks = 1;
    around.parameters = parameterOffset(std::string("cuda:") + GetParam());
    around.arguments = {0x10000000000, 0x20000000000};
    Latencies latencies;
    latencies.l1 = 40;
    latencies.global = 300;
    return trace(decode(find(name)), around, latencies);
  }
  std::vector<Function> functions;
};

/// Text of instructions whose control says nothing.
std::string textOf(const std::vector<std::string> &code) {
  std::string text = "\t.section\t.text.tessera_made,\"ax\",@progbits\n";
  for (std::size_t i = 0; i < code.size(); ++i)
    text += fmt::format("        /*{:04x}*/   {} ; /* 0x0 */\n /* "
                        "0x000fc20000000000 */\n",
                        16 * i, code[i]);
  return text;
}

Operand reg(int number) {
  Operand operand;
  operand.kind = OperandKind::reg;
  operand.number = static_cast<std::int16_t>(number);
  return operand;
}

/// Executes `code` after R0 … R3 were set to two words of 64 bits, and returns
/// R4 and R5.
std::optional<std::uint64_t> compute(std::uint64_t x, std::uint64_t y,
                                     std::vector<std::string> code) {
  const std::uint32_t words[] = {std::uint32_t(x), std::uint32_t(x >> 32),
                                 std::uint32_t(y), std::uint32_t(y >> 32)};
  for (int i = 3; i >= 0; --i)
    code.insert(code.begin(), fmt::format("MOV R{}, {:#x}", i, words[i]));
  auto functions = parse(textOf(code));
  EXPECT_TRUE(functions.ok()) << functions.message();
  const std::vector<Decoded> decoded = decode(functions->front());
  const Surroundings around;
  Thread thread(around);
  for (const Decoded &one : decoded)
    if (thread.guard(*one.from).value_or(false))
      thread.execute(one, true);
  const auto low = thread.word(reg(4)), high = thread.word(reg(5));
  if (!low || !high)
    return std::nullopt;
  return *low | std::uint64_t(*high) << 32;
}

} // namespace

INSTANTIATE_TEST_SUITE_P(Sass, Recorded, testing::Values("sm_80", "sm_90a"),
                         [](const auto &info) {
                           return std::string(info.param);
                         });

TEST_P(Recorded, HasEveryKernel) {
  EXPECT_EQ(functions.size(), 5u);
  EXPECT_EQ(countGeneric(find("generic")), 1u);
  for (std::string_view name : {"sum", "chase", "count", "copies"})
    EXPECT_EQ(countGeneric(find(name)), 0u) << name;
}

TEST_P(Recorded, FourLoadsAreInFlight) {
  const WarpTrace sum = follow("sum");
  EXPECT_EQ(sum.unknown, "");
  EXPECT_EQ(sum.assumed, 0u);
  EXPECT_EQ(sum.loadBytes, 64u * 16);
  EXPECT_EQ(sum.missBytes, sum.loadBytes);
  EXPECT_EQ(sum.storeBytes, 4u);
  ASSERT_EQ(sum.loops.size(), 1u);
  EXPECT_EQ(sum.loops[0].trips, 16u);
  EXPECT_EQ(sum.loops[0].waits, 16u);
  EXPECT_EQ(sum.loops[0].inFlight, 4u * 16);
  EXPECT_GT(sum.cycles, 16 * 300);
  EXPECT_LT(sum.cycles, 16 * 300 + 10. * double(sum.instructions));
}

TEST_P(Recorded, LoadsOfAddressesThatWereLoadedFollowEachOther) {
  const WarpTrace chase = follow("chase");
  EXPECT_EQ(chase.unknown, "");
  EXPECT_EQ(chase.waits, 100u); // the last one before the store
  ASSERT_EQ(chase.loops.size(), 1u);
  EXPECT_EQ(chase.loops[0].trips, 100u);
  EXPECT_EQ(chase.loops[0].inFlight, 8u);
  EXPECT_GT(chase.cycles, 100 * 300);
}

TEST_P(Recorded, LoopsAsLongAsMemorySaysAreUnknown) {
  EXPECT_NE(follow("count").unknown.find("comes from memory"),
            std::string::npos);
}

TEST_P(Recorded, CopiesStayInFlightOverIterations) {
  const WarpTrace copies = follow("copies");
  EXPECT_EQ(copies.unknown, "");
  EXPECT_EQ(copies.copyBytes, 64u * 16);
  EXPECT_EQ(copies.loadBytes, 0u);
  ASSERT_EQ(copies.loops.size(), 1u);
  EXPECT_EQ(copies.loops[0].trips, 62u);
  EXPECT_EQ(copies.loops[0].inFlight, 2u * 16);
  // Two stages at a time.
  EXPECT_GT(copies.cycles, 62 / 2 * 300);
  EXPECT_LT(copies.cycles, 62 * 300);
}

TEST(Sass, ComputesWordsOf64Bits) {
  std::mt19937_64 random(1);
  for (int i = 0; i < 200; ++i) {
    const std::uint64_t x = random() >> (random() % 64),
                        y = random() % 4 ? random() >> (random() % 64) : x;
    EXPECT_EQ(compute(x, y,
                      {"IADD3 R4, P0, R0, R2, RZ",
                       "IADD3.X R5, R1, R3, RZ, P0, !PT"}),
              x + y);
    EXPECT_EQ(
        compute(x, y,
                {"IADD3 R4, P0, R0, -R2, RZ", "IMAD.X R5, R1, 0x1, ~R3, P0"}),
        x - y);
    EXPECT_EQ(compute(x, y,
                      {"LEA R4, P1, R0, R2, 0x3",
                       "LEA.HI.X R5, R0, R3, R1, 0x3, P1"}),
              (x << 3) + y);
    EXPECT_EQ(
        compute(x, y,
                {"SHF.R.S64 R4, R0, 0x7, R1", "SHF.R.S32.HI R5, RZ, 0x7, R1"}),
        std::uint64_t(std::int64_t(x) >> 7));
    EXPECT_EQ(compute(x, y,
                      {"IMAD.SHL.U32 R4, R0, 0x20, RZ",
                       "SHF.L.U64.HI R5, R0, 0x5, R1"}),
              x << 5);
    EXPECT_EQ(compute(x, y, {"IMAD.WIDE.U32 R4, R0, R2, RZ"}),
              std::uint64_t(std::uint32_t(x)) * std::uint32_t(y));
    EXPECT_EQ(compute(x, y, {"IMAD.WIDE R4, R0, -0x3, R2"}),
              std::uint64_t(std::int64_t(std::int32_t(x)) * -3) + y);
    EXPECT_EQ(compute(x, y,
                      {"LOP3.LUT R4, R0, R2, RZ, 0x3c, !PT",
                       "LOP3.LUT R5, R1, R3, RZ, 0xc0, !PT"}),
              (x ^ y) % (1ull << 32) | ((x & y) >> 32 << 32));
    EXPECT_EQ(
        compute(x, y, {"PRMT R4, R0, 0x5410, R2", "PRMT R5, R0, 0x7632, R2"}),
        (x & 0xffff) | (y & 0xffff) << 16 | (x >> 16 & 0xffff) << 32 |
            (y >> 16 & 0xffff) << 48);
  }
}

TEST(Sass, ComparesWordsOf64Bits) {
  std::mt19937_64 random(2);
  const auto compare = [](std::uint64_t x, std::uint64_t y, const char *name) {
    return compute(x, y,
                   {fmt::format("ISETP.{}.U32.AND P0, PT, R0, R2, PT", name),
                    fmt::format("ISETP.{}.AND.EX P0, P1, R1, R3, PT, P0", name),
                    "SEL R4, RZ, 0x1, !P0", "SEL R5, RZ, 0x1, !P1"});
  };
  for (int i = 0; i < 200; ++i) {
    const std::uint64_t x = random(), far = random(),
                        near = x ^ std::uint64_t(random() % 3);
    for (std::uint64_t y : {far, near, x}) {
      const auto a = std::int64_t(x), b = std::int64_t(y);
      const auto expected = [](bool holds) {
        return std::uint64_t(holds) | std::uint64_t(!holds) << 32;
      };
      EXPECT_EQ(compare(x, y, "LT"), expected(a < b));
      EXPECT_EQ(compare(x, y, "GE"), expected(a >= b));
      EXPECT_EQ(compare(x, y, "EQ"), expected(a == b));
      EXPECT_EQ(compare(x, y, "NE"), expected(a != b));
    }
  }
}

TEST(Sass, KnowsConstantsOfHalves) {
  EXPECT_EQ(compute(0, 0,
                    {"HFMA2.MMA R4, -RZ, RZ, 0, 5.9604644775390625e-08",
                     "HFMA2.MMA R5, -RZ, RZ, 1.875, -2"}),
            0x3f80c000'00000001u);
}

TEST(Sass, WhatIsNotModelledIsUnknown) {
  EXPECT_EQ(compute(1, 2, {"MOV R4, R0", "MOV R5, R0", "FADD R4, R0, R1"}),
            std::nullopt);
  EXPECT_EQ(compute(1, 2, {"MOV R4, R0", "MOV R5, R0", "NEW.64 R4, R0"}),
            std::nullopt);
}

TEST(Sass, ErrorsNameTheLine) {
  const std::string good = textOf({"NOP"});
  for (const auto &[from, to, message] :
       {std::tuple("NOP ;", "NOP",
                   "line 2 of SASS: an instruction has an "
                   "address in /* */ and ends in a semicolon"),
        {"/*0000*/", "/*zero*/",
         "line 2 of SASS: an instruction has an address in /* */ and ends in a "
         "semicolon"},
        {"NOP", "@Q NOP", "line 2 of SASS: 'Q' is not a predicate"},
        {"0x000fc20000000000", "0xnothing",
         "line 3 of SASS: the encoding is not two words of 64 bits"}}) {
    std::string text = good;
    text.replace(text.find(from), std::string_view(from).size(), to);
    auto parsed = parse(text);
    ASSERT_FALSE(parsed.ok()) << text;
    EXPECT_EQ(parsed.message(), message);
  }
}
