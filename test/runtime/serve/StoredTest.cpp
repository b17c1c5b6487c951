// What is stored: its bounds, the events that are told again, and queries.
#include "runtime/serve/AnswerStore.h"
#include "runtime/serve/Followers.h"
#include "runtime/serve/StoredAnswers.h"
#include "runtime/support/SplitMix64.h"

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

namespace tessera::serve {
namespace {

KeptAnswer chat(const std::string &id, size_t size = 10) {
  return {id, {}, std::string(size, 'x'), {}, nullptr};
}

std::vector<std::string> idsOf(const AnswerStore &store) {
  std::vector<std::string> ids;
  store.forEach([&](const KeptAnswer &kept) { ids.push_back(kept.id); });
  return ids;
}

class Idle final : public RunningResponse {
public:
  void cancel() override {}
  void follow(std::shared_ptr<HttpReply>, int64_t, bool) override {}
};

TEST(AnswerStore, TheLatestStay) {
  AnswerStore store({.count = 3, .bytes = 1 << 20});
  for (const char *id : {"a", "b", "c"})
    store.put(chat(id));
  EXPECT_NE(store.find("a"), nullptr);
  store.put(chat("d")); // b is the one that nobody asked for longest
  EXPECT_EQ(idsOf(store), (std::vector<std::string>{"a", "c", "d"}));
  EXPECT_EQ(store.evicted(), 1u);
  store.put(chat("a")); // again: the newest
  EXPECT_EQ(idsOf(store), (std::vector<std::string>{"c", "d", "a"}));
  store.erase("d");
  store.erase("d");
  EXPECT_EQ(store.find("d"), nullptr);
  EXPECT_EQ(store.evicted(), 1u);
  store.erase("a");
  store.erase("c");
  EXPECT_EQ(store.bytes(), 0u);
}

KeptAnswer running(const std::string &id, size_t size = 10) {
  KeptAnswer answer = chat(id, size);
  answer.running = std::make_shared<Idle>();
  return answer;
}

TEST(AnswerStore, WhatRunsStays) {
  AnswerStore store({.count = 1, .bytes = 1 << 20});
  store.put(running("a"));
  store.put(chat("b"));
  EXPECT_EQ(idsOf(store), (std::vector<std::string>{"a", "b"}));
  store.put(chat("c"));
  EXPECT_EQ(idsOf(store), (std::vector<std::string>{"a", "c"}));
  store.find("a")->running.reset();
  store.weigh("a");
  EXPECT_EQ(idsOf(store), (std::vector<std::string>{"a"}));
  store.put(chat("d"));
  EXPECT_EQ(idsOf(store), (std::vector<std::string>{"d"}));
}

TEST(AnswerStore, WhatRunsPushesOutNothing) {
  AnswerStore store({.count = 50, .bytes = 10'000});
  store.put(chat("a", 5000));
  size_t before = store.bytes();
  for (const char *id : {"b", "c", "d"})
    store.put(running(id, 9000));
  EXPECT_EQ(store.count(), 4u);
  EXPECT_EQ(store.evicted(), 0u);
  EXPECT_GT(store.runningBytes(), 27'000u);
  EXPECT_EQ(store.bytes(), before + store.runningBytes());
  store.find("b")->running.reset();
  store.weigh("b"); // from here on it is one of the finished
  EXPECT_EQ(idsOf(store), (std::vector<std::string>{"b", "c", "d"}));
  store.erase("c");
  store.erase("d");
  EXPECT_EQ(store.runningBytes(), 0u);
}

TEST(AnswerStore, WhatRunsHasARoomOfItsOwn) {
  ApiRequest request;
  request.endpoint = Endpoint::responses;
  request.messages = {{"user", std::string(40'000, 'x')}};
  request.items = {{"", std::string(40'000, 'x')}};
  AnswerStore store({.count = 50, .bytes = 100'000});
  EXPECT_FALSE(checkRoom(request, store)); // it is waited for
  request.background = true;
  EXPECT_FALSE(checkRoom(request, store));
  store.put(chat("a", 90'000)); // what is finished has another
  EXPECT_FALSE(checkRoom(request, store));
  store.put(running("b", 20'000));
  auto full = checkRoom(request, store);
  ASSERT_TRUE(full);
  EXPECT_EQ(full->status, 429);
  store.erase("b");
  EXPECT_FALSE(checkRoom(request, store));
  request.messages.push_back({"user", std::string(40'000, 'x')});
  auto large = checkRoom(request, store);
  ASSERT_TRUE(large);
  EXPECT_EQ(large->status, 400); // to wait would not help
}

// Against a list that is sorted by hand.
TEST(AnswerStore, BytesAreBounded) {
  const size_t own = chat("1234", 0).bytes();
  AnswerStore store({.count = 50, .bytes = 40 * (own + 100)});
  std::vector<std::pair<std::string, size_t>> wanted; // the oldest use first
  SplitMix64 random(3);
  auto sum = [&] {
    size_t bytes = 0;
    for (const auto &[id, size] : wanted)
      bytes += own + size;
    return bytes;
  };
  for (int i = 0; i < 5000; ++i) {
    std::string id = std::to_string(1000 + random() % 100);
    auto at =
        std::ranges::find(wanted, id, &std::pair<std::string, size_t>::first);
    if (random() % 3 == 0) {
      EXPECT_EQ(store.find(id) != nullptr, at != wanted.end());
      if (at != wanted.end())
        std::rotate(at, at + 1, wanted.end());
      continue;
    }
    size_t size = random() % 50 == 0 ? 1 << 20 : random() % 300;
    if (at != wanted.end())
      wanted.erase(at);
    if (size < 1 << 20)
      wanted.emplace_back(id, size);
    while (sum() > 40 * (own + 100) || wanted.size() > 50)
      wanted.erase(wanted.begin());
    store.put(chat(id, size));
    ASSERT_EQ(store.count(), wanted.size());
    ASSERT_EQ(store.bytes(), sum());
  }
}

/// Keeps what it is told.
class Listener final : public HttpReply {
public:
  using HttpReply::begin;
  void send(int, std::string_view, std::string, std::string_view) override {}
  void begin(std::span<const ServerEvent> first) override { add(first); }
  void event(std::string_view data, std::string_view) override {
    said.emplace_back(data);
  }
  void end(std::span<const ServerEvent> last) override {
    add(last);
    isOver = true;
  }
  std::vector<std::string> said;
  bool isOver = false;

private:
  void add(std::span<const ServerEvent> events) {
    for (const ServerEvent &each : events)
      said.push_back(each.data);
  }
};

std::vector<std::string> toldAgain(const ResponseRecord &record) {
  std::vector<std::string> data;
  for (const ServerEvent &each : eventsOf(record, /*obfuscate=*/false, -1))
    data.push_back(each.data);
  return data;
}

Delta randomDelta(SplitMix64 &random, size_t &calls) {
  Delta delta;
  if (calls > 0 && random() % 3 == 0)
    delta.calls.push_back({calls - 1, {}, {}, std::string(random() % 3, 'y')});
  // A text ends the call before it.
  if (random() % 2 == 0)
    delta.text = std::string(random() % 4, 'x');
  if (random() % 4 == 0)
    delta.calls.push_back({calls++, "id", "f", std::string(random() % 3, 'z')});
  return delta;
}

// Whatever comes, at every moment: what is told again is what was told, and
// whoever comes late or left for a while misses nothing.
TEST(ResponseRecord, EventsAreToldAgain) {
  for (uint64_t seed = 0; seed < 400; ++seed) {
    SplitMix64 random(seed);
    ResponseRecord record;
    record.id = "resp_1";
    record.constants = R"({"id":"resp_1"})";
    record.background = seed % 2 == 0;
    ResponseWriter writer(record, /*obfuscate=*/false);
    auto live = std::make_shared<Listener>(),
         late = std::make_shared<Listener>();
    auto followers = std::make_shared<Followers>();
    followers->add(live, -1, false, {});
    writer.begin(followers.get());
    int64_t after = -1;
    bool isFollowed = false;
    size_t calls = 0;
    for (uint64_t i = random() % 20; i-- > 0;) {
      Delta delta = randomDelta(random, calls);
      // Pieces of a call that a text has ended do not come.
      if (!delta.calls.empty() && delta.calls.front().name.empty() &&
          record.output.back().kind != OutputKind::call)
        delta.calls.erase(delta.calls.begin());
      writer.piece(followers.get(), delta);
      EXPECT_EQ(toldAgain(record), live->said);
      if (!isFollowed && random() % 4 == 0) {
        isFollowed = true;
        after = int64_t(random() % (live->said.size() + 3)) - 1;
        followers->add(late, after, false, eventsOf(record, false, after));
      }
    }
    record.status = ResponseStatus(2 + seed % 4);
    record.usage = Usage{1, 0, 2};
    writer.end(followers.get());
    EXPECT_EQ(toldAgain(record), live->said);
    EXPECT_TRUE(live->isOver);
    if (isFollowed)
      EXPECT_EQ(late->said,
                std::vector<std::string>(
                    live->said.begin() +
                        std::min(after + 1, int64_t(live->said.size())),
                    live->said.end()));
    for (size_t i = 0; i < live->said.size(); ++i)
      EXPECT_EQ(nlohmann::json::parse(live->said[i])["sequence_number"], i);
  }
}

// What is not asked for is counted and not made, however long it would be.
TEST(ResponseRecord, EventsBeforeTheFirstAreOnlyCounted) {
  ResponseRecord record;
  record.id = "resp_1";
  record.constants = R"({"id":"resp_1"})";
  ResponseWriter writer(record, /*obfuscate=*/false);
  writer.begin(nullptr);
  size_t calls = 0;
  SplitMix64 random(5);
  for (int i = 0; i < 30; ++i) {
    Delta delta = randomDelta(random, calls);
    delta.calls.clear();
    writer.piece(nullptr, delta);
  }
  record.status = ResponseStatus::completed;
  writer.end(nullptr);
  auto all = eventsOf(record, false, -1);
  for (int64_t after : {0, 1, 5, int(all.size()) - 2, 1 << 30}) {
    auto some = eventsOf(record, false, after);
    size_t had = std::min(size_t(after + 1), all.size());
    ASSERT_EQ(some.size(), all.size() - had);
    for (size_t i = 0; i < some.size(); ++i)
      EXPECT_EQ(some[i].data, all[had + i].data);
  }
  // Nor is it read: this is no JSON.
  record.constants = std::string(1 << 20, '?');
  EXPECT_TRUE(eventsOf(record, false, 1 << 30).empty());
}

TEST(ResponseRecord, ItsJson) {
  ResponseRecord record;
  record.constants = R"({"id":"resp_1","tools":[]})";
  auto json = nlohmann::json::parse(responseJson(record));
  EXPECT_EQ(json, nlohmann::json::parse(
                      R"({"id":"resp_1","tools":[],"status":"in_progress",
                          "error":null,"incomplete_details":null,"output":[],
                          "usage":null})"));
  record.constants = "{}";
  record.status = ResponseStatus::failed;
  record.error = "\"a\"";
  record.usage = Usage{1, 0, 2};
  json = nlohmann::json::parse(responseJson(record));
  EXPECT_EQ(json["error"]["message"], record.error);
  EXPECT_EQ(json["usage"]["total_tokens"], 3);
}

// One who leaves ends nothing for the others.
TEST(ResponseRecord, FollowersLeave) {
  auto followers = std::make_shared<Followers>();
  auto one = std::make_shared<Listener>(), other = std::make_shared<Listener>();
  followers->add(one, -1, false, {});
  followers->add(other, 0, false, {});
  followers->event("0", "");
  one->onGone();
  followers->event("1", "");
  followers->end({});
  EXPECT_EQ(one->said, std::vector<std::string>{"0"});
  EXPECT_EQ(other->said, std::vector<std::string>{"1"});
  EXPECT_FALSE(one->isOver);
  EXPECT_TRUE(other->isOver);
}

// Each has the padding that they asked for.
TEST(ResponseRecord, FollowersArePaddedOneByOne) {
  auto followers = std::make_shared<Followers>();
  auto plain = std::make_shared<Listener>(),
       padded = std::make_shared<Listener>();
  followers->add(plain, -1, false, {});
  followers->add(padded, -1, true, {});
  ResponseRecord record;
  record.id = "resp_1";
  record.constants = R"({"tools":[{"a":1,"obfuscation":"of its own"}]})";
  ResponseWriter writer(record, /*obfuscate=*/true);
  writer.begin(followers.get());
  for (const char *text : {"a", R"(,"obfuscation":"x"})", "long as it is"}) {
    Delta delta;
    delta.text = text;
    writer.piece(followers.get(), delta);
  }
  EXPECT_EQ(plain->said, toldAgain(record));
  ASSERT_EQ(padded->said.size(), plain->said.size());
  int pieces = 0;
  for (size_t i = 0; i < plain->said.size(); ++i) {
    auto event = nlohmann::json::parse(padded->said[i]);
    if (event.contains("delta")) {
      ++pieces;
      EXPECT_EQ((event["delta"].get<std::string>().size() +
                 event["obfuscation"].get<std::string>().size()) %
                    16,
                0u);
      event.erase("obfuscation");
    }
    EXPECT_EQ(event, nlohmann::json::parse(plain->said[i]));
  }
  EXPECT_EQ(pieces, 3);
}

StoredQuery read(RouteId route, std::string_view query) {
  auto parsed = parseQuery(route, query);
  if (const auto *error = std::get_if<ApiError>(&parsed)) {
    ADD_FAILURE() << query << ": " << error->message;
    return {};
  }
  return std::get<StoredQuery>(parsed);
}

TEST(StoredQuery, IsDecoded) {
  StoredQuery query =
      read(RouteId::listChats, "after=a%26b&&limit=7&order=desc&model=x%2Fy+z"
                               "&metadata%5Ba%3D%5D=1%2B1&metadata[b]=");
  EXPECT_EQ(query.after, "a&b");
  EXPECT_EQ(query.limit, 7);
  EXPECT_EQ(query.ascending, false);
  EXPECT_EQ(query.model, "x/y z");
  EXPECT_EQ(query.metadata, (Metadata{{"a=", "1+1"}, {"b", ""}}));
  query = read(RouteId::response,
               "stream=true&starting_after=3&include_obfuscation=true"
               "&include[]=reasoning.encrypted_content");
  EXPECT_TRUE(query.stream && query.obfuscate);
  EXPECT_EQ(query.startingAfter, 3);
  EXPECT_EQ(read(RouteId::response, "").limit, 20);
}

TEST(StoredQuery, OthersAreRefused) {
  for (auto [route, query] :
       std::initializer_list<std::pair<RouteId, std::string_view>>{
           {RouteId::listChats, "limit=101"},
           {RouteId::listChats, "limit=1e1"},
           {RouteId::listChats, "limit=+1"},
           {RouteId::listChats, "limit= 1"},
           {RouteId::listChats, "limit="},
           {RouteId::inputItems, "limit=-1"},
           {RouteId::listChats, "order[]x=asc"},
           {RouteId::listChats, "metadata[]=x"},
           {RouteId::listChats, "metadata]a[=x"},
           {RouteId::listChats, "metadata[=x"},
           {RouteId::listChats, "stream=true"},
           {RouteId::storedChat, "limit=1"},
           {RouteId::response, "starting_after=9007199254740993"},
           {RouteId::response, "stream=TRUE"},
           {RouteId::response, "include=x"},
           {RouteId::deleteChat, "%6"}})
    EXPECT_TRUE(std::holds_alternative<ApiError>(parseQuery(route, query)))
        << query;
}

} // namespace
} // namespace tessera::serve
