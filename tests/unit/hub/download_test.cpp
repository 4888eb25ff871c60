// Files on their way to disk: resume, verification, and that nothing half-written is ever used.
#include "hub/download.h"
#include "hub/sha256.h"
#include "support/fake_server.h"
#include "support/temporary_folder.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <mutex>

namespace kapitsa::hub {
namespace {

namespace fs = std::filesystem;
using test::FakeReply;
using test::FakeRequest;
using test::FakeServer;
using test::read_file;
using test::serve_file;
using testing::HasSubstr;

constexpr int64_t kPlenty = int64_t{1} << 40;

std::string sha256(const std::string& text) {
  Sha256 hash;
  hash.update(std::as_bytes(std::span<const char>(text)));
  return hash.hex();
}

class DownloadTest : public testing::Test {
protected:
  // `known` gives size and checksum, as the hub does for large files.
  Result<std::vector<Downloaded>> fetch(const FakeServer& server, bool known, int attempts = 1) {
    Download download{.request = {.url = server.url("/file")}, .target = target()};
    if (known) {
      download.bytes = static_cast<int64_t>(content_.size());
      download.sha256 = sha256(content_);
    }
    return fetch_all({download}, attempts);
  }
  Result<std::vector<Downloaded>> fetch_all(const std::vector<Download>& downloads,
                                            int attempts = 1) {
    HttpOptions http{.attempts = attempts,
                     .first_pause = std::chrono::milliseconds(1),
                     .stall_timeout = std::chrono::seconds(1)};
    http.cancelled = [this] { return cancelled_.load(); };
    DownloadOptions options;
    options.free_bytes = [this](const fs::path&) { return Result<int64_t>(free_); };
    options.progress = [this](const Progress& progress) { last_ = progress; };
    return download_all(HttpClient(http), downloads, options);
  }
  fs::path target() const { return folder_ / "model.gguf"; }
  fs::path part() const { return folder_ / "model.gguf.part"; }
  bool only_target_left() const {
    return fs::exists(target()) && !fs::exists(part()) && !fs::exists(part().string() + ".json");
  }

  const test::TemporaryFolder folder_;
  const std::string content_ = [] {
    std::string text;
    for (int i = 0; i < 50000; ++i)
      text += std::to_string(i);
    return text;
  }();
  int64_t free_ = kPlenty;
  std::atomic<bool> cancelled_ = false;
  Progress last_;
};

TEST_F(DownloadTest, arrives_whole_with_its_checksum) {
  const FakeServer server([&](const FakeRequest& r) { return serve_file(r, content_, "\"1\""); });
  const auto done = fetch(server, true);
  ASSERT_TRUE(done) << done.error().message;
  EXPECT_EQ(read_file(target()), content_);
  EXPECT_EQ((*done)[0].sha256, sha256(content_));
  EXPECT_TRUE(only_target_left());
  EXPECT_EQ(last_.done_bytes, static_cast<int64_t>(content_.size()));
  EXPECT_EQ(last_.files_done, 1);
}

TEST_F(DownloadTest, goes_on_within_a_run_where_it_was_cut) {
  std::atomic<int> n = 0;
  const FakeServer server([&](const FakeRequest& r) {
    FakeReply reply = serve_file(r, content_, "\"1\"");
    if (++n == 1) reply.send = 1000;
    return reply;
  });
  for (const bool known : {true, false}) {
    n = 0;
    fs::remove(target());
    ASSERT_TRUE(fetch(server, known, 3));
    EXPECT_EQ(read_file(target()), content_);
    EXPECT_EQ(server.requests().back().range_start(), 1000);
    EXPECT_EQ(server.requests().back().header("if-range"), "\"1\"");
  }
}

class Resume : public DownloadTest {
protected:
  // A first run that is cut, with some 1000 bytes on disk.
  void cut_once() {
    const FakeServer server([&](const FakeRequest& r) {
      FakeReply reply = serve_file(r, content_, etag_);
      reply.send = 1000;
      return reply;
    });
    url_ = server.url("/file");
    ASSERT_FALSE(fetch(server, known_));
    ASSERT_EQ(fs::file_size(part()), 1000U);
    ASSERT_FALSE(fs::exists(target()));
  }
  // The address is part of what a file without a checksum is known by.
  void pretend_same_address(const FakeServer& server) const {
    std::string note = read_file(part().string() + ".json");
    const size_t at = note.find(url_);
    ASSERT_NE(at, std::string::npos) << note;
    note.replace(at, url_.size(), server.url("/file"));
    folder_.write("model.gguf.part.json", note);
  }

  bool known_ = true;
  std::string etag_ = "\"1\"";
  std::string url_;
};

TEST_F(Resume, takes_over_the_bytes_of_an_earlier_run) {
  for (const bool known : {true, false}) {
    known_ = known;
    cut_once();
    const FakeServer server([&](const FakeRequest& r) { return serve_file(r, content_, "\"1\""); });
    pretend_same_address(server);
    ASSERT_TRUE(fetch(server, known_));
    EXPECT_EQ(read_file(target()), content_);
    ASSERT_EQ(server.requests().size(), 1U);
    EXPECT_EQ(server.requests()[0].range_start(), 1000);
    EXPECT_EQ(last_.fresh_bytes, static_cast<int64_t>(content_.size()) - 1000);
    fs::remove(target());
  }
}

TEST_F(Resume, a_file_that_changed_starts_anew) {
  known_ = false;
  cut_once();
  const std::string changed = "changed " + content_;
  const FakeServer server([&](const FakeRequest& r) { return serve_file(r, changed, "\"2\""); });
  pretend_same_address(server);
  ASSERT_TRUE(fetch(server, known_));
  EXPECT_EQ(read_file(target()), changed);
}

TEST_F(Resume, a_server_that_ignores_if_range_cannot_mix_two_versions) {
  known_ = false;
  cut_once();
  const std::string changed = "changed " + content_;
  const FakeServer server([&](FakeRequest r) {
    r.headers.erase("if-range");
    return serve_file(r, changed, "\"2\"");
  });
  pretend_same_address(server);
  ASSERT_TRUE(fetch(server, known_));
  EXPECT_EQ(read_file(target()), changed);
}

TEST_F(Resume, a_server_without_ranges_sends_all_again) {
  cut_once();
  const FakeServer server([&](const FakeRequest&) { return FakeReply{.body = content_}; });
  const auto done = fetch(server, known_);
  ASSERT_TRUE(done) << done.error().message;
  EXPECT_EQ(read_file(target()), content_);
}

TEST_F(Resume, a_refused_range_starts_anew) {
  known_ = false;
  cut_once();
  const FakeServer server([&](const FakeRequest& r) {
    return r.range_start() ? FakeReply{.status = 416} : FakeReply{.body = content_};
  });
  pretend_same_address(server);
  const auto done = fetch(server, known_, 2);
  ASSERT_TRUE(done) << done.error().message;
  EXPECT_EQ(read_file(target()), content_);
}

TEST_F(Resume, a_damaged_part_is_found_by_the_checksum_and_fetched_again) {
  cut_once();
  folder_.write("model.gguf.part", std::string(1000, 'x'));
  const FakeServer server([&](const FakeRequest& r) { return serve_file(r, content_, "\"1\""); });
  const auto done = fetch(server, known_);
  ASSERT_TRUE(done) << done.error().message;
  EXPECT_EQ(read_file(target()), content_);
  EXPECT_FALSE(server.requests().back().range_start().has_value());
}

TEST_F(Resume, without_etag_and_checksum_nothing_is_taken_over) {
  known_ = false;
  etag_ = "";
  cut_once();
  const FakeServer server([&](const FakeRequest& r) { return serve_file(r, content_); });
  pretend_same_address(server);
  ASSERT_TRUE(fetch(server, known_));
  EXPECT_FALSE(server.requests()[0].range_start().has_value());
}

TEST_F(Resume, a_complete_part_needs_no_network) {
  cut_once();
  folder_.write("model.gguf.part", content_);
  const FakeServer server([&](const FakeRequest&) { return FakeReply{.status = 500}; });
  const auto done = fetch(server, known_);
  ASSERT_TRUE(done) << done.error().message;
  EXPECT_EQ(server.requests().size(), 0U);
  EXPECT_EQ(read_file(target()), content_);
}

TEST_F(DownloadTest, a_damaged_file_is_refused_and_nothing_is_kept) {
  std::string wrong = content_;
  wrong[77] = '#';
  const FakeServer server([&](const FakeRequest& r) { return serve_file(r, wrong, "\"1\""); });
  const auto done = fetch(server, true);
  ASSERT_FALSE(done);
  EXPECT_EQ(done.error().code, ErrorCode::corrupt_file);
  EXPECT_THAT(done.error().message, HasSubstr(server.url("/file")));
  EXPECT_THAT(done.error().message, HasSubstr("expected SHA-256 " + sha256(content_)));
  EXPECT_THAT(done.error().message, HasSubstr("found " + sha256(wrong)));
  EXPECT_EQ(done.error().message.find('\n'), std::string::npos);
  EXPECT_TRUE(fs::is_empty(folder_.path()));
}

TEST_F(DownloadTest, a_file_of_another_size_is_refused_before_it_is_fetched) {
  const FakeServer server([&](const FakeRequest& r) { return serve_file(r, content_ + "x"); });
  const auto done = fetch(server, true);
  ASSERT_FALSE(done);
  EXPECT_THAT(done.error().message,
              HasSubstr("expected a file of " + std::to_string(content_.size()) +
                        " bytes, found one"
                        " of " +
                        std::to_string(content_.size() + 1)));
}

TEST_F(DownloadTest, a_stalled_file_keeps_what_came) {
  const FakeServer server([&](const FakeRequest& r) {
    FakeReply reply = serve_file(r, content_, "\"1\"");
    reply.send = 1000;
    reply.stall = true;
    return reply;
  });
  const auto done = fetch(server, true);
  ASSERT_FALSE(done);
  EXPECT_THAT(done.error().message, HasSubstr("stalled"));
  EXPECT_EQ(fs::file_size(part()), 1000U);
  EXPECT_FALSE(fs::exists(target()));
}

TEST_F(DownloadTest, cancelling_keeps_what_came) {
  const FakeServer server([&](const FakeRequest& r) {
    FakeReply reply = serve_file(r, content_, "\"1\"");
    reply.send = 1000;
    reply.stall = true;
    cancelled_ = true;
    return reply;
  });
  const auto done = fetch(server, true);
  ASSERT_FALSE(done);
  EXPECT_EQ(done.error().code, ErrorCode::cancelled);
  EXPECT_FALSE(fs::exists(target()));
}

TEST_F(DownloadTest, a_disk_without_room_is_told_before_it_is_full) {
  free_ = 1000;
  const FakeServer server([&](const FakeRequest& r) { return serve_file(r, content_); });
  const auto done = fetch(server, false);
  ASSERT_FALSE(done);
  EXPECT_THAT(done.error().message, HasSubstr("not enough room on this disk"));
  EXPECT_THAT(done.error().message, HasSubstr("1.0 kB are free"));
  EXPECT_THAT(done.error().message, HasSubstr(folder_.path().string()));
  EXPECT_FALSE(fs::exists(target()));
}

TEST_F(DownloadTest, a_disk_that_fills_up_meanwhile_is_an_error_of_the_file) {
  if (!fs::exists("/dev/full")) GTEST_SKIP() << "no /dev/full here";
  fs::create_symlink("/dev/full", part());
  const FakeServer server([&](const FakeRequest& r) { return serve_file(r, content_); });
  const auto done = fetch(server, true);
  ASSERT_FALSE(done);
  EXPECT_THAT(done.error().message, HasSubstr(part().string()));
  EXPECT_FALSE(fs::exists(target()));
}

TEST_F(DownloadTest, a_size_or_a_checksum_is_needed) {
  const FakeServer server([&](const FakeRequest&) {
    return FakeReply{.headers = {{"Content-Length", "x"}}, .body = content_};
  });
  Download download{.request = {.url = server.url("/file")}, .target = target()};
  EXPECT_FALSE(fetch_all({download}));
  EXPECT_FALSE(fs::exists(target()));
}

TEST_F(DownloadTest, a_right_file_is_not_fetched_again_and_a_wrong_one_is_replaced) {
  const FakeServer server([&](const FakeRequest& r) { return serve_file(r, content_); });
  folder_.write("model.gguf", content_);
  ASSERT_TRUE(fetch(server, true));
  EXPECT_EQ(server.requests().size(), 0U);
  folder_.write("model.gguf", std::string(content_.size(), 'x'));
  ASSERT_TRUE(fetch(server, true));
  EXPECT_EQ(read_file(target()), content_);
}

TEST_F(DownloadTest, several_files_come_together) {
  const FakeServer server(
      [&](const FakeRequest& r) { return serve_file(r, content_ + r.target, "\"1\""); });
  std::vector<Download> downloads;
  for (int i = 0; i < 7; ++i) {
    const std::string name = "/shard" + std::to_string(i);
    downloads.push_back({.request = {.url = server.url(name)},
                         .target = folder_.path() / name.substr(1),
                         .bytes = static_cast<int64_t>(content_.size() + name.size())});
  }
  const auto done = fetch_all(downloads);
  ASSERT_TRUE(done) << done.error().message;
  for (int i = 0; i < 7; ++i) {
    const std::string name = "shard" + std::to_string(i);
    EXPECT_EQ(read_file(folder_ / name), content_ + "/" + name);
    EXPECT_EQ((*done)[static_cast<size_t>(i)].sha256, sha256(content_ + "/" + name));
  }
  EXPECT_EQ(last_.files_done, 7);
  EXPECT_EQ(last_.done_bytes, last_.total_bytes);
}

TEST_F(DownloadTest, one_failure_ends_the_set_and_leaves_what_is_complete) {
  const FakeServer server([&](const FakeRequest& r) {
    return r.target == "/bad" ? FakeReply{.status = 404} : serve_file(r, content_);
  });
  HttpOptions http{.attempts = 1};
  DownloadOptions options{.parallel = 1};
  const auto done =
      download_all(HttpClient(http),
                   {{.request = {.url = server.url("/good")}, .target = folder_ / "good"},
                    {.request = {.url = server.url("/bad")}, .target = folder_ / "bad"},
                    {.request = {.url = server.url("/after")}, .target = folder_ / "after"}},
                   options);
  ASSERT_FALSE(done);
  EXPECT_THAT(done.error().message, HasSubstr("/bad: not there (HTTP 404)"));
  EXPECT_TRUE(fs::exists(folder_ / "good"));
  EXPECT_FALSE(fs::exists(folder_ / "after"));
}

TEST(ShownBytes, use_decimal_units) {
  EXPECT_EQ(shown_bytes(0), "0 B");
  EXPECT_EQ(shown_bytes(999), "999 B");
  EXPECT_EQ(shown_bytes(98362432), "98.4 MB");
  EXPECT_EQ(shown_bytes(999999), "1.0 MB");
  EXPECT_EQ(shown_bytes(int64_t{19700} * 1000 * 1000), "19.7 GB");
}

}  // namespace
}  // namespace kapitsa::hub
