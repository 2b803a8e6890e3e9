//! Log lines and metrics as clients see them.

use super::*;

#[tokio::test]
async fn a_program_puts_metrics_of_its_own_job_and_may_do_nothing_else() {
    let server = Unconnected::start().await;
    server.put_job("Mine", false).await;
    server.put_job("other", true).await;
    let program = || Holder::Attempt { id: "Mine-1".into(), job: "Mine".into() };
    let now = now_ms() / 1000;
    let metrics = |component: &str, times: &[u64]| {
        let metric = |at: &u64| json!({"MetricName": "loss", "Timestamp": at, "Step": 1, "Value": 0.5});
        json!({"TrialComponentName": component, "MetricData": times.iter().map(metric).collect::<Value>()})
    };
    let put = |component: &str| server.call_as(program(), "BatchPutMetrics", metrics(component, &[now]));
    assert_eq!(put("mine-aws-training-job").await, Ok(json!({})));
    for others in ["other-aws-training-job", "mine-aws-training-job-aws-training-job", "mine2"] {
        assert_eq!(put(others).await.unwrap_err().code, ErrorCode::AccessDenied, "{others}");
    }
    for (name, input) in [
        ("ListTrainingJobs", json!({})),
        ("StopTrainingJob", json!({"TrainingJobName": "Mine"})),
        (
            "BatchGetMetrics",
            json!({"MetricQueries": [{"MetricName": "loss", "MetricStat": "Last", "Period": "OneMinute",
            "XAxisType": "Timestamp", "ResourceArn": arn::training_job(REGION, ACCOUNT, "Mine")}]}),
        ),
    ] {
        let denied = server.call_as(program(), name, input).await.unwrap_err();
        assert_eq!(denied.code, ErrorCode::AccessDenied, "{name}");
    }
    let owners = |component: &'static str| server.call("BatchPutMetrics", metrics(component, &[now]));
    assert_eq!(owners("other-aws-training-job").await, Ok(json!({})));
    let missing = owners("none-aws-training-job").await.unwrap_err();
    assert_eq!(missing.code, ErrorCode::ResourceNotFound);
    server.put_job("MINE", true).await;
    let several = owners("mine-aws-training-job").await.unwrap_err();
    assert!(several.message.contains("that of MINE and Mine"), "{}", several.message);
    server.stop().await;
}

#[tokio::test]
async fn each_query_of_metrics_has_an_answer_of_its_own() {
    let server = Unconnected::start().await;
    server.put_job("a", true).await;
    let minute = 60_000;
    let points: Vec<_> = [(0, 1.0), (1, 3.0), (minute, 5.0), (2 * minute, 7.0)]
        .map(|(at_ms, value)| MetricPoint { metric: "loss".to_owned(), at_ms: 600_000 + at_ms, value })
        .into();
    let steps = [Some(2), Some(2), None, Some(1)];
    server.telemetry.append_steps("a", &points, &steps, u64::MAX).unwrap();
    let own = arn::training_job(REGION, ACCOUNT, "a");
    let query = |arn: &str, axis: &str, statistic: &str| {
        let period = if axis == "Timestamp" { "OneMinute" } else { axis };
        json!({"MetricName": "loss", "ResourceArn": arn, "MetricStat": statistic, "Period": period, "XAxisType": axis})
    };
    let mut windowed = query(&own, "Timestamp", "Max");
    (windowed["Start"], windowed["End"]) = (json!(600), json!(660));
    let queries = [
        (query(&own, "Timestamp", "Avg"), json!([600, 660, 720]), json!([2.0, 5.0, 7.0])),
        (query(&own, "Timestamp", "StdDev"), json!([600, 660, 720]), json!([1.0, 0.0, 0.0])),
        (windowed, json!([600, 660]), json!([3.0, 5.0])),
        (query(&own, "IterationNumber", "Last"), json!([1, 2]), json!([7.0, 3.0])),
        (query(&arn::training_job(REGION, ACCOUNT, "none"), "Timestamp", "Avg"), json!([]), json!([])),
        (query(&arn::tuning_job(REGION, ACCOUNT, "a"), "Timestamp", "Avg"), json!([]), json!([])),
    ];
    let input = json!({"MetricQueries": queries.iter().map(|(query, ..)| query.clone()).collect::<Value>()});
    let answer = server.call("BatchGetMetrics", input).await.unwrap();
    for ((query, times, values), result) in queries.iter().zip(answer["MetricQueryResults"].as_array().unwrap()) {
        assert_eq!((&result["XAxisValues"], &result["MetricValues"]), (times, values), "{query}");
        let is_refused = times.as_array().unwrap().is_empty();
        assert_eq!(result["Status"], if is_refused { "ValidationError" } else { "Complete" }, "{query}");
    }
    server.stop().await;
}

#[tokio::test]
async fn metrics_are_listed_by_their_dimension_in_pages() {
    let server = Unconnected::start().await;
    let point = |metric: &str, at_ms| MetricPoint { metric: metric.to_owned(), at_ms, value: 1.0 };
    let many: Vec<_> = (0..501).map(|number| point(&format!("metric {number:03}"), now_ms())).collect();
    server.telemetry.append_points("many", &many).unwrap();
    server.telemetry.append_points("old", &[point("loss", 1000)]).unwrap();
    let dimension = |value: &str| json!({"Name": "TrainingJobName", "Value": value});
    for (input, pages) in [
        (json!({}), vec![500, 2]),
        (json!({"Dimensions": [dimension("many")]}), vec![500, 1]),
        (json!({"Dimensions": [dimension("old")]}), vec![1]),
        (json!({"Dimensions": [{"Name": "TrainingJobName"}], "MetricName": "loss"}), vec![1]),
        (json!({"RecentlyActive": "PT3H", "MetricName": "loss"}), vec![0]),
        (json!({"Dimensions": [dimension("old"), dimension("many")]}), vec![0]),
        (json!({"Dimensions": [{"Name": "Host", "Value": "old"}]}), vec![0]),
        (json!({"Namespace": "AWS/EC2"}), vec![0]),
        (json!({"Namespace": "/aws/sagemaker/TrainingJobs", "MetricName": "metric 007"}), vec![1]),
    ] {
        let found = server.pages("ListMetrics", &input, "Metrics", "NextToken").await;
        assert_eq!(found.iter().map(Vec::len).collect::<Vec<_>>(), pages, "{input}");
        let all: std::collections::BTreeSet<String> = found.concat().iter().map(Value::to_string).collect();
        assert_eq!(all.len(), pages.iter().sum::<usize>(), "each once: {input}");
    }
    let token = server.call("ListMetrics", json!({})).await.unwrap()["NextToken"].clone();
    let another = json!({"NextToken": token, "MetricName": "loss"});
    assert_eq!(server.code("ListMetrics", another).await, ErrorCode::ValidationException);
    server.stop().await;
}

#[tokio::test]
async fn log_streams_and_groups_come_in_pages_of_their_question() {
    let server = Unconnected::start().await;
    let logs: Vec<_> = [("b/algo-1", 3), ("a/algo-1", 9), ("a/algo-2", 5)]
        .map(|(stream, at_ms)| LogLines {
            stream: stream.to_owned(),
            lines: vec![(at_ms, stream.to_owned())],
            ..LogLines::default()
        })
        .into();
    server.telemetry.append_logs(&logs).unwrap();
    let group = "/aws/sagemaker/TrainingJobs";
    let streams = |pages: Vec<Vec<Value>>| {
        let name = |stream: &Value| stream["logStreamName"].as_str().unwrap().to_owned();
        pages.iter().map(|page| page.iter().map(name).collect::<Vec<_>>().join(" ")).collect::<Vec<_>>()
    };
    for (input, expected) in [
        (json!({"limit": 2}), vec!["a/algo-1 a/algo-2", "b/algo-1"]),
        (json!({"limit": 3}), vec!["a/algo-1 a/algo-2 b/algo-1"]),
        (json!({"limit": 2, "descending": true}), vec!["b/algo-1 a/algo-2", "a/algo-1"]),
        (json!({"limit": 1, "orderBy": "LastEventTime"}), vec!["b/algo-1", "a/algo-2", "a/algo-1"]),
        (json!({"limit": 2, "orderBy": "LastEventTime", "descending": true}), vec!["a/algo-1 a/algo-2", "b/algo-1"]),
        // What SDK v2 asks for: it never sends a token back.
        (json!({"limit": 1, "logStreamNamePrefix": "a/"}), vec!["a/algo-1 a/algo-2"]),
    ] {
        let mut input = input;
        input["logGroupName"] = json!(group);
        let pages = server.pages("DescribeLogStreams", &input, "logStreams", "nextToken").await;
        assert_eq!(streams(pages), expected, "{input}");
    }
    let first = server.call("DescribeLogStreams", json!({"logGroupName": group, "limit": 1})).await.unwrap();
    let other = json!({"logGroupName": group, "descending": true, "nextToken": first["nextToken"]});
    assert_eq!(server.code("DescribeLogStreams", other).await, ErrorCode::ValidationException);

    for name in ["mine", "zoo"] {
        server.call("CreateLogGroup", json!({"logGroupName": name})).await.unwrap();
    }
    let groups = server.pages("DescribeLogGroups", &json!({"limit": 1}), "logGroups", "nextToken").await;
    let groups: Vec<_> = groups.concat().iter().map(|it| it["logGroupName"].as_str().unwrap().to_owned()).collect();
    assert_eq!(groups, [group, "mine", "zoo"]);

    let filtered = json!({"logGroupName": group, "limit": 1});
    let found = server.pages("FilterLogEvents", &filtered, "events", "nextToken").await.concat();
    let times: Vec<_> = found.iter().map(|event| event["timestamp"].as_u64().unwrap()).collect();
    assert_eq!(times, [3, 5, 9]);
    let token = server.call("FilterLogEvents", filtered).await.unwrap()["nextToken"].clone();
    let other = json!({"logGroupName": group, "filterPattern": "algo", "nextToken": token});
    assert_eq!(server.code("FilterLogEvents", other).await, ErrorCode::ValidationException);
    // The end of the window is in it.
    let window = json!({"logGroupName": group, "startTime": 5, "endTime": 9});
    assert_eq!(server.call("FilterLogEvents", window).await.unwrap()["events"].as_array().unwrap().len(), 2);
    for (name, input) in [
        ("DescribeLogStreams", json!({"logGroupName": "none"})),
        ("FilterLogEvents", json!({"logGroupName": "none"})),
        ("FilterLogEvents", json!({"logGroupName": group, "logStreamNames": ["a"]})),
        ("GetLogEvents", json!({"logGroupName": "none", "logStreamName": "a/algo-1"})),
        ("GetLogEvents", json!({"logGroupName": "mine", "logStreamName": "a/algo-1"})),
    ] {
        assert_eq!(server.code(name, input.clone()).await, ErrorCode::ResourceNotFound, "{name} {input}");
    }
    server.stop().await;
}
