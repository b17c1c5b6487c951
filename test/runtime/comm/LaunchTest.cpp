// Which rank this is, by the environments that starters leave.
#include "runtime/comm/Launch.h"

#include <gtest/gtest.h>

#include <map>

namespace tessera::comm {
namespace {

using Variables = std::map<std::string, std::string>;

StatusOr<Launch> read(const Variables &variables) {
  return readLaunch([&](const char *name) -> const char * {
    const auto found = variables.find(name);
    return found == variables.end() ? nullptr : found->second.c_str();
  });
}

const Variables kOpenMpi = {{"OMPI_COMM_WORLD_RANK", "3"},
                            {"OMPI_COMM_WORLD_SIZE", "8"},
                            {"OMPI_COMM_WORLD_LOCAL_RANK", "1"},
                            {"OMPI_COMM_WORLD_LOCAL_SIZE", "2"}};
const Variables kMpich = {{"PMI_RANK", "3"},
                          {"PMI_SIZE", "8"},
                          {"MPI_LOCALRANKID", "1"},
                          {"MPI_LOCALNRANKS", "2"}};
const Variables kTorchrun = {{"RANK", "3"},
                             {"WORLD_SIZE", "8"},
                             {"LOCAL_RANK", "1"},
                             {"LOCAL_WORLD_SIZE", "2"},
                             {"MASTER_ADDR", "node0"},
                             {"MASTER_PORT", "29500"}};
const Variables kSlurm = {{"SLURM_PROCID", "3"},
                          {"SLURM_STEP_NUM_TASKS", "8"},
                          {"SLURM_LOCALID", "1"}};

Variables with(Variables variables, const Variables &more) {
  for (const auto &[name, value] : more)
    variables[name] = value;
  return variables;
}

void expectLaunch(const Variables &variables, Launch::Starter starter) {
  const StatusOr<Launch> launch = read(variables);
  ASSERT_TRUE(launch.ok()) << launch.message();
  EXPECT_EQ(launch->starter, starter) << launch->describe();
  EXPECT_EQ(launch->rank, 3);
  EXPECT_EQ(launch->size, 8);
  EXPECT_EQ(launch->localRank, 1);
  EXPECT_EQ(launch->localSize, 2);
}

TEST(Launch, IsAloneWhereNobodySpeaks) {
  const StatusOr<Launch> launch = read({});
  ASSERT_TRUE(launch.ok());
  EXPECT_EQ(launch->starter, Launch::Starter::alone);
  EXPECT_EQ(launch->rank, 0);
  EXPECT_EQ(launch->size, 1);
  // In a batch script, outside of srun; and a word that others use too.
  EXPECT_EQ(read({{"SLURM_PROCID", "0"}, {"SLURM_NTASKS", "8"}})->size, 1);
  EXPECT_EQ(read({{"RANK", "captain"}})->size, 1);
}

TEST(Launch, ReadsEveryStarter) {
  using Starter = Launch::Starter;
  expectLaunch(kOpenMpi, Starter::openMpi);
  expectLaunch(kMpich, Starter::mpich);
  expectLaunch(kTorchrun, Starter::address);
  expectLaunch(kSlurm, Starter::slurm);
  expectLaunch(with(kSlurm, {{"SLURM_MPI_TYPE", "pmix_v4"}}), Starter::openMpi);
  expectLaunch(with(kSlurm, {{"SLURM_MPI_TYPE", "pmi2"}}), Starter::mpich);
}

TEST(Launch, ReadsTheMastersAddress) {
  const StatusOr<Launch> launch = read(kTorchrun);
  EXPECT_EQ(launch->masterAddress, "node0");
  EXPECT_EQ(launch->masterPort, 29500);
}

TEST(Launch, TakesTheInnermostStarter) {
  // An mpirun inside of a Slurm step, whose own rank means its daemon.
  expectLaunch(
      with(kOpenMpi, {{"SLURM_PROCID", "0"}, {"SLURM_STEP_NUM_TASKS", "4"}}),
      Launch::Starter::openMpi);
  // Scripts that translate for PyTorch.
  expectLaunch(with(kMpich, kTorchrun), Launch::Starter::mpich);
}

void expectError(const Variables &variables, const std::string &line) {
  const StatusOr<Launch> launch = read(variables);
  ASSERT_FALSE(launch.ok());
  EXPECT_EQ(launch.message(), line);
}

TEST(Launch, RefusesContradictions) {
  expectError(
      with(kOpenMpi, {{"RANK", "3"}, {"WORLD_SIZE", "4"}}),
      "the environment contradicts itself: OMPI_COMM_WORLD_RANK=3 "
      "OMPI_COMM_WORLD_SIZE=8, but RANK=3 WORLD_SIZE=4: start with one of "
      "them, or unset what is left over");
  expectError(with(kMpich, {{"OMPI_COMM_WORLD_RANK", "0"},
                            {"OMPI_COMM_WORLD_SIZE", "8"}}),
              "the environment contradicts itself: OMPI_COMM_WORLD_RANK=0 "
              "OMPI_COMM_WORLD_SIZE=8, but PMI_RANK=3 PMI_SIZE=8: start with "
              "one of them, or unset what is left over");
}

TEST(Launch, RefusesWhatIsNoRank) {
  expectError({{"WORLD_SIZE", "4"}},
              "the environment has WORLD_SIZE and no RANK: torchrun sets both");
  expectError({{"PMI_RANK", "1"}}, "the environment has PMI_RANK and no "
                                   "PMI_SIZE: mpirun of MPICH sets both");
  expectError({{"RANK", "4"}, {"WORLD_SIZE", "4"}},
              "the environment variable RANK is '4', not a number from 0 to 3");
  expectError({{"RANK", "0"}, {"WORLD_SIZE", "0"}},
              "the environment variable WORLD_SIZE is '0', not a number from 1 "
              "to 1048576");
  expectError({{"RANK", "1x"}, {"WORLD_SIZE", "4"}},
              "the environment variable RANK is '1x', not a number from 0 to "
              "3");
  expectError(with(kTorchrun, {{"MASTER_PORT", "99999"}}),
              "the environment variable MASTER_PORT is '99999', not a number "
              "from 1 to 65535");
}

} // namespace
} // namespace tessera::comm
