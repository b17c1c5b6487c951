#include "test/parallelism/pipeline/Cases.h"

namespace tessera::pipeline {
namespace {

Schedule read(std::string_view text) { return take(parseCsv(text, "t.csv")); }
std::string error(std::string_view text) {
  return parseCsv(text, "t.csv").message();
}

void expectEqual(const Schedule &a, const Schedule &b) {
  EXPECT_EQ(a.name, b.name);
  EXPECT_EQ(a.ranks, b.ranks);
  EXPECT_EQ(a.stages, b.stages);
  EXPECT_EQ(a.microbatches, b.microbatches);
  EXPECT_EQ(a.replicas, b.replicas);
  EXPECT_EQ(a.forwardOnly, b.forwardOnly);
  EXPECT_EQ(a.placement, b.placement);
  EXPECT_EQ(a.slots, b.slots);
  EXPECT_EQ(a.lists, b.lists);
}

TEST(Csv, ComesBackAsItWas) {
  for (const Case &each : allCases()) {
    SCOPED_TRACE(each.text());
    const Schedule schedule = take(generate(*each.policy, each.shape));
    expectEqual(read(toCsv(schedule)), schedule);
    LowerOptions options;
    options.unsharded = 2;
    const Schedule lowered = take(lower(schedule, options));
    expectEqual(read(toCsv(lowered)), lowered);
    expectEqual(read(toCsv(forwardsOf(schedule))), forwardsOf(schedule));
  }
}

TEST(Csv, ReadsTablesOfComputeAlone) {
  const Schedule s = read("0F0,0F1,,0I0, 0W0 ,0B1\r\n"
                          ",1F0,1B0,1F1,1B1\r\n");
  EXPECT_EQ(s.ranks, 2);
  EXPECT_EQ(s.stages, 2);
  EXPECT_EQ(s.microbatches, 2);
  EXPECT_EQ(s.replicas, 1);
  EXPECT_EQ(s.placement, (std::vector{0, 1}));
  EXPECT_FALSE(s.isLowered());
  EXPECT_EQ(s.lists[0].size(), 5u);
  EXPECT_EQ(toString(s.lists[0][3]), "0W0");
  EXPECT_TRUE(check(s).ok()) << check(s).message();
  EXPECT_TRUE(check(take(lower(s))).ok());
}

TEST(Csv, ReadsOverlappedCells) {
  for (const char *cell : {"(0F1;0B0)", "(0F1;0B0)OVERLAP_F_B", "(0B0;0F1)"}) {
    const Schedule s = read(fmt::format("0F0,{},0B1\n", cell));
    EXPECT_EQ(toString(s.lists[0][1]), "(0F1;0B0)");
    EXPECT_TRUE(check(s).ok());
  }
}

TEST(Csv, ReadsStagesInAV) {
  const Schedule s = read("0F0,3F0,3B0,0B0\n1F0,2F0,2B0,1B0\n");
  EXPECT_EQ(s.placement, (std::vector{0, 1, 1, 0}));
  const Schedule lowered = take(lower(s));
  EXPECT_TRUE(check(lowered).ok());
  // Nothing is sent where the V turns.
  EXPECT_EQ(toText(lowered).find("1SEND_F"), std::string::npos);
}

TEST(Csv, NamesLineAndColumnOfWhatItCannotRead) {
  EXPECT_EQ(error(""), "t.csv: has no rows; a schedule has one for each rank");
  EXPECT_EQ(
      error("0F0,0X0\n"),
      "t.csv: line 1, column 5: '0X0' is not an instruction; write stage, "
      "operation and microbatch as in 0F3, numbers below 1048576");
  EXPECT_EQ(error("0F0,0B0\n1F0, 1B9999999\n"),
            "t.csv: line 2, column 6: '1B9999999' is not an instruction; write "
            "stage, operation and microbatch as in 0F3, numbers below 1048576");
  for (const char *cell :
       {"F-1", "0F0F", "-1F0", "(0F0", "(0F0;0F1)", "(0F0;0B0)X", "0OVERLAP1",
        "0F0@", "0F0@-1", "0f0", "\x01\x02", "0F 0", "()"})
    EXPECT_TRUE(error(fmt::format("{},0B0\n", cell))
                    .starts_with("t.csv: line 1, column 1: "))
        << cell << ": " << error(fmt::format("{},0B0\n", cell));
  EXPECT_EQ(error("0F0,0B0\n0F1,0B1\n"),
            "t.csv: line 2, column 1: stage 0 is in the rows of rank 0 and "
            "1; a stage has one rank");
  EXPECT_EQ(error("0F0,2B0\n"), "t.csv: stage 1 of 3 is not in any row");
  EXPECT_EQ(error("0F0,F1\n"), "t.csv: line 1, column 5: F1 has no stage of "
                               "the 1");
  EXPECT_EQ(error("0F0,0B\n"), "t.csv: line 1, column 5: 0B has no microbatch "
                               "of the 1");
  EXPECT_EQ(error("0F0,0UNSHARD,0B0\n"),
            "t.csv: line 1, column 5: 0UNSHARD is in a schedule without "
            "buffers; give only compute, or buffers as in 0F3@1");
  EXPECT_EQ(
      error("0F1000000,0B0\n"),
      "t.csv: 1 stages and 1000001 microbatches need 1000001 F, but there "
      "are only 2 instructions");
}

TEST(Csv, RefusesCommentsThatLie) {
  auto header = [](const char *fields) {
    return error(fmt::format("# tessera-schedule {}\n0F0,0B0\n", fields));
  };
  EXPECT_EQ(header("stages=1 microbatches=1 placement=0"), "");
  EXPECT_EQ(header("colour=blue"),
            "t.csv: line 1, column 1: unknown field 'colour'; expected name, "
            "stages, microbatches, replicas, pass, placement or slots");
  EXPECT_EQ(header("stages=0"),
            "t.csv: line 1, column 1: stages cannot be '0'");
  EXPECT_EQ(header("placement=0:"),
            "t.csv: line 1, column 1: placement cannot be '0:'");
  EXPECT_EQ(header("name=a/b"),
            "t.csv: line 1, column 1: name cannot be 'a/b'");
  EXPECT_EQ(header("pass=backward"),
            "t.csv: line 1, column 1: pass cannot be 'backward'");
  EXPECT_EQ(header("pass=forward"), "t.csv: line 2, column 5: 0B0 is in a "
                                    "schedule of forwards only");
  EXPECT_EQ(header("pass=both"), "");
  EXPECT_EQ(header("stages=2"), "t.csv: stage 1 of 2 is not in any row");
  EXPECT_EQ(header("placement=1"), "t.csv: stage 0 is placed on rank 1 of 1");
  EXPECT_EQ(header("replicas=2"), "t.csv: 1 stages do not divide into 2 "
                                  "replicas");
  EXPECT_EQ(error("# tessera-schedule replicas=2\n0F0,0B0,1F1,1B1\n"),
            "t.csv: rank 0 has two replicas of stage 0");
  EXPECT_EQ(header("slots=900000"),
            "t.csv: rank 0 has 900000 slots for 2 instructions");
  EXPECT_EQ(header("slots=1:1"), "t.csv: 1 ranks, but 1 lists and 2 slot "
                                 "counts");
}

} // namespace
} // namespace tessera::pipeline
