// Algorithms that read as a person would write them for one rank, and yet never
// block: C++20 coroutines that stop where they wait for their messages.
#pragma once
#include <coroutine>
#include <utility>

namespace tessera::comm {

/// A running algorithm, as a coroutine. Does nothing until it is resumed or
/// awaited. An exception (out of memory) ends it and propagates to the caller
/// that resumed it.
class [[nodiscard]] Steps {
public:
  struct promise_type {
    std::coroutine_handle<> caller = std::noop_coroutine();

    Steps get_return_object() {
      return Steps(std::coroutine_handle<promise_type>::from_promise(*this));
    }
    std::suspend_always initial_suspend() noexcept { return {}; }
    auto final_suspend() noexcept {
      struct ReturnToCaller {
        bool await_ready() noexcept { return false; }
        std::coroutine_handle<>
        await_suspend(std::coroutine_handle<promise_type> done) noexcept {
          return done.promise().caller;
        }
        void await_resume() noexcept {}
      };
      return ReturnToCaller{};
    }
    void return_void() {}
    void unhandled_exception() { throw; }
  };

  Steps(Steps &&other) noexcept
      : handle(std::exchange(other.handle, nullptr)) {}
  Steps &operator=(Steps &&other) noexcept {
    std::swap(handle, other.handle);
    return *this;
  }
  ~Steps() {
    if (handle)
      handle.destroy();
  }

  bool done() const { return handle.done(); }
  std::coroutine_handle<> start() const { return handle; }

  // co_await: runs these steps to their end before the caller resumes.
  bool await_ready() const noexcept { return false; }
  std::coroutine_handle<> await_suspend(std::coroutine_handle<> caller) {
    handle.promise().caller = caller;
    return handle;
  }
  void await_resume() const noexcept {}

private:
  explicit Steps(std::coroutine_handle<promise_type> handle) : handle(handle) {}
  std::coroutine_handle<promise_type> handle;
};

} // namespace tessera::comm
