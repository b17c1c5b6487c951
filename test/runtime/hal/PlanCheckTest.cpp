// Plans that are well-formed and wrong: the null device must say why.
#include "runtime/hal/null/PlanCheck.h"
#include "runtime/hal/null/ByteSet.h"
#include "test/runtime/hal/Conformance.h"

#include <random>

using namespace tessera;
using namespace tessera::test;

namespace {

std::string nullError(ProgramT program, std::uint64_t stateBytes = 0) {
  hal::SessionOptions options;
  options.device = "null";
  return Runner(oneProgram(std::move(program), stateBytes), options).message();
}

InstanceT scale(ArgT from, ArgT to) {
  return instance({std::move(from), std::move(to)}, 1, {16});
}
NodeT write(std::uint64_t offset, std::uint64_t bytes) {
  return fill(arg(Space::arena, offset, bytes), 0);
}

} // namespace

TEST(PlanCheck, ReadBeforeWrite) {
  EXPECT_EQ(nullError(program(
                "main", 192, 0, {}, {},
                {write(0, 60), launch(kScale,
                                      {scale(arg(Space::arena, 0, 64),
                                             arg(Space::arena, 64, 64))},
                                      "h.0.attn")})),
            "test.tsr: program 'main': step 1 (h.0.attn): scale: argument 0 "
            "reads byte 60 of the arena, which nothing has written");
  EXPECT_EQ(nullError(program(
                "main", 64, 64, {}, {},
                {copy(arg(Space::io, 0, 64), arg(Space::arena, 0, 64))})),
            "test.tsr: program 'main': step 0 (test.copy): copy: argument 0 "
            "reads byte 0 of the io, which nothing has written");
}

TEST(PlanCheck, ReadWriteIsARead) {
  const auto accumulate = [] {
    return launch(kAccumulate, {instance({arg(Space::state, 0, 64),
                                          arg(Space::arena, 0, 64)},
                                         1, {16})});
  };
  EXPECT_NE(nullError(program("main", 64, 0, {}, {}, {accumulate()}), 64)
                .find("accumulate: argument 1 reads byte 0 of the arena"),
            std::string::npos);
  EXPECT_EQ(
      nullError(program("main", 64, 0, {}, {}, {write(0, 64), accumulate()}),
                64),
      "");
}

TEST(PlanCheck, ALaunchCannotReadWhatItsOtherInstanceWrites) {
  const auto both = [](std::uint64_t secondReads) {
    return program(
        "main", 256, 0, {}, {},
        {write(0, 64), launch(kScale, {scale(arg(Space::arena, 0, 64),
                                             arg(Space::arena, 64, 64)),
                                       scale(arg(Space::arena, secondReads, 64),
                                             arg(Space::arena, 128, 64))})});
  };
  EXPECT_EQ(nullError(both(0)), "");
  EXPECT_NE(nullError(both(64)).find("scale: argument 0 reads byte 64"),
            std::string::npos);
}

TEST(PlanCheck, InstancesThatRace) {
  const auto pair = [](ArgT firstTo, ArgT secondFrom, ArgT secondTo) {
    return program("main", 512, 0, {}, {},
                   {write(0, 512),
                    launch(kScale, {scale(arg(Space::arena, 0, 64), firstTo),
                                    scale(secondFrom, secondTo)})});
  };
  const auto at = [](std::uint64_t offset) {
    return arg(Space::arena, offset, 64);
  };
  EXPECT_EQ(nullError(pair(at(64), at(128), at(192))), "");
  EXPECT_EQ(nullError(pair(at(0), at(128), at(128))), ""); // each in place
  EXPECT_EQ(nullError(pair(at(64), at(128), at(64))),
            "test.tsr: program 'main': step 1 (test.launch): kernel 'scale': "
            "instances 0 and 1 touch byte 64 of the arena at the same time, "
            "and one writes it");
  EXPECT_NE(nullError(pair(at(64), at(64), at(128))).find("at the same time"),
            std::string::npos);
  EXPECT_NE(nullError(pair(at(64), at(128), at(0))).find("at the same time"),
            std::string::npos);
  EXPECT_NE(nullError(pair(arg(Space::arena, 64, 256), at(320), at(256)))
                .find("touch byte 256"),
            std::string::npos);
}

TEST(PlanCheck, OutputsMustBeComplete) {
  EXPECT_EQ(
      nullError(program(
          "main", 0, 128, {},
          {tensor("y", ElementType::f32, {32}, Role::output, Space::io, 0)},
          {fill(arg(Space::io, 0, 127), 0)})),
      "test.tsr: program 'main': output 'y': nothing writes its byte 127");
}

TEST(PlanCheck, LoopsAreFollowedIterationByIteration) {
  // Iteration i reads what iteration i − 1 wrote, 64 bytes further on.
  const auto chain = [](std::uint64_t firstBytes, std::uint64_t trip) {
    return program("main", 1024, 0, {}, {},
                   {write(0, firstBytes),
                    loop(trip, {launch(kScale,
                                       {scale(arg(Space::arena, 0, 64, {64}),
                                              arg(Space::arena, 64, 64, {64}))},
                                       "scan")})});
  };
  EXPECT_EQ(nullError(chain(64, 15)), "");
  EXPECT_NE(nullError(chain(32, 15))
                .find("step 1 (test.loop): iteration 0: step 0 (scan)"),
            std::string::npos);
  // Reads twice as far apart as the writes: the second iteration is too far.
  EXPECT_NE(
      nullError(
          program(
              "main", 1024, 0, {}, {},
              {write(0, 64),
               loop(4, {launch(kScale,
                               {scale(arg(Space::arena, 0, 64, {128}),
                                      arg(Space::arena, 64, 64, {64}))})})}))
          .find("iteration 1: step 0"),
      std::string::npos);
}

TEST(PlanCheck, LongLoopsThatDoNotMoveCostNothing) {
  EXPECT_EQ(
      nullError(program("main", 64, 0, {}, {},
                        {loop(std::uint64_t(1) << 32,
                              {fill(arg(Space::arena, 0, 64, {0}), 0)})})),
      "");
}

TEST(PlanCheck, TooManyStepsAreRefused) {
  EXPECT_NE(nullError(program("main", 1 << 26, 0, {}, {},
                              {loop(std::uint64_t(1) << 25,
                                    {fill(arg(Space::arena, 0, 1, {1}), 0)})}))
                .find("more than 20000000 steps are too many to check"),
            std::string::npos);
}

TEST(ByteSet, AgreesWithASetOfBytes) {
  std::mt19937 random(7);
  for (int round = 0; round < 200; ++round) {
    hal::ByteSet set;
    std::vector<bool> reference(200);
    for (int i = 0; i < 30; ++i) {
      const std::uint64_t begin = random() % 200;
      const std::uint64_t end = begin + random() % (201 - begin);
      set.insert(begin, end);
      std::fill(reference.begin() + static_cast<long>(begin),
                reference.begin() + static_cast<long>(end), true);
      const std::uint64_t from = random() % 200;
      const std::uint64_t to = from + random() % (201 - from);
      std::uint64_t missing = from;
      while (missing < to && reference[missing])
        ++missing;
      ASSERT_EQ(set.firstMissing(from, to), missing);
    }
  }
}
