#include "runtime/data/NewDirectory.h"
#include "test/runtime/data/TestData.h"

#include <atomic>
#include <chrono>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <thread>

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

using namespace tessera;
using namespace tessera::testing;
namespace fs = std::filesystem;

namespace {
/// How a process ends that makes `directory` and meets a signal meanwhile.
int endOfProcess(const std::string &directory, int signal, void (*before)(int),
                 int caught) {
  pid_t child = ::fork();
  if (child == 0) {
    ::signal(signal, before);
    Status status = makeNewDirectory(directory, [&](const std::string &folder) {
      for (int i = 0; i < 300; ++i) // more than one call lists
        std::ofstream(folder + "/file-" + std::to_string(i)) << "some bytes";
      ::raise(signal);
      return Status::success();
    });
    ::_exit(status.ok() ? caught : 99);
  }
  int ended = 0;
  ::waitpid(child, &ended, 0);
  return ended;
}
} // namespace

TEST(NewDirectory, IsThereWholeOrNotAtAll) {
  ScratchDirectory scratch;
  const std::string place = scratch / "made/";
  auto fill = [](const std::string &folder) {
    return writeNewFile(folder + "/file", "text");
  };
  ASSERT_TRUE(makeNewDirectory(place, fill).ok());
  EXPECT_TRUE(fs::exists(scratch / "made/file"));
  EXPECT_EQ(makeNewDirectory(place, fill).message(),
            "'" + place + "' is there already; choose another directory");
  auto failing = [](const std::string &) { return Status::error("no"); };
  EXPECT_EQ(makeNewDirectory(scratch / "other", failing).message(), "no");
  EXPECT_EQ(std::distance(fs::directory_iterator(scratch.path), {}), 1);
}

TEST(NewDirectory, SaysBeforehandThatItCannotBeMade) {
  ScratchDirectory scratch;
  std::ofstream(scratch / "file") << "text";
  for (const char *above : {"absent", "file"})
    EXPECT_EQ(checkNewDirectory(scratch / above + "/made").message(),
              "'" + (scratch / above) + "/made' cannot be made: directory '" +
                  (scratch / above) +
                  "' does not exist; create it first, or choose another");
  // Where not even root makes one.
  std::string message = checkNewDirectory("/proc/made").message();
  EXPECT_TRUE(message.starts_with("'/proc/made' cannot be made in '/proc': "))
      << message;
  fs::create_symlink("nowhere", scratch / "link");
  EXPECT_FALSE(checkNewDirectory(scratch / "link").ok());
  EXPECT_TRUE(checkNewDirectory(scratch / "made").ok());
  EXPECT_EQ(std::distance(fs::directory_iterator(scratch.path), {}), 2);
}

TEST(NewDirectory, LeavesNothingWhenASignalEndsTheProcess) {
  for (int signal : {SIGINT, SIGTERM, SIGHUP}) {
    ScratchDirectory scratch;
    int ended = endOfProcess(scratch / "made", signal, SIG_DFL, 0);
    EXPECT_TRUE(WIFSIGNALED(ended));
    EXPECT_EQ(WTERMSIG(ended), signal);
    EXPECT_TRUE(fs::is_empty(scratch.path));
  }
}

// Those of nohup.
TEST(NewDirectory, IsMadeWhereSignalsAreIgnored) {
  ScratchDirectory scratch;
  int ended = endOfProcess(scratch / "made", SIGHUP, SIG_IGN, 7);
  EXPECT_EQ(WEXITSTATUS(ended), 7);
  EXPECT_TRUE(fs::exists(scratch / "made/file-299"));
}

// A handler on another thread, while the directory is given its name: whoever
// comes first has it, and nothing is half done.
TEST(NewDirectory, IsWholeOrNotAtAllWhicheverThreadMeetsASignal) {
  ScratchDirectory scratch;
  const std::string place = scratch / "made";
  constexpr int kFiles = 40;
  auto before = ::signal(SIGINT, [](int) {});
  for (int i = 0; i < 80; ++i) {
    std::atomic<bool> isFull = false;
    std::thread other([&] {
      while (!isFull)
        std::this_thread::yield();
      std::this_thread::sleep_for(std::chrono::microseconds(4 * i));
      ::raise(SIGINT); // to this thread
    });
    Status status = makeNewDirectory(place, [&](const std::string &folder) {
      for (int file = 0; file < kFiles; ++file)
        std::ofstream(folder + "/file-" + std::to_string(file)) << "bytes";
      isFull = true;
      return Status::success();
    });
    // What is left when the call returns, whatever the other thread does.
    const auto left = std::distance(fs::directory_iterator(scratch.path), {});
    other.join();
    ASSERT_EQ(left, status.ok() ? 1 : 0) << status.message();
    if (status.ok())
      ASSERT_EQ(std::distance(fs::directory_iterator(place), {}), kFiles);
    fs::remove_all(place);
  }
  ::signal(SIGINT, before);
}

// Such as LLVM's, who removes files of its own and lets the process end.
TEST(NewDirectory, LeavesNothingWhereOthersHandleSignals) {
  ScratchDirectory scratch;
  int ended =
      endOfProcess(scratch / "made", SIGINT, [](int) { ::_exit(8); }, 0);
  EXPECT_EQ(WEXITSTATUS(ended), 8);
  EXPECT_TRUE(fs::is_empty(scratch.path));
  ended = endOfProcess(scratch / "made", SIGINT, [](int) {}, 0);
  EXPECT_EQ(WEXITSTATUS(ended), 99) << "an error";
  EXPECT_TRUE(fs::is_empty(scratch.path));
}

// A handler opens the folder to remove it; another's goes on.
TEST(NewDirectory, LeavesNothingWhereAHandlerFindsNoDescriptor) {
  ScratchDirectory scratch;
  auto before = ::signal(SIGINT, [](int) {});
  Status status =
      makeNewDirectory(scratch / "made", [](const std::string &folder) {
        std::ofstream(folder + "/file") << "some bytes";
        rlimit limit;
        ::getrlimit(RLIMIT_NOFILE, &limit);
        const rlimit none{0, limit.rlim_max};
        ::setrlimit(RLIMIT_NOFILE, &none);
        ::raise(SIGINT);
        ::setrlimit(RLIMIT_NOFILE, &limit);
        return Status::success();
      });
  ::signal(SIGINT, before);
  EXPECT_NE(status.message().find("a signal came meanwhile"),
            std::string::npos);
  EXPECT_TRUE(fs::is_empty(scratch.path));
}
