module bbs/sdk/go

go 1.19
