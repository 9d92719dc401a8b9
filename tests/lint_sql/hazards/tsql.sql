-- onceward: dialect tsql
CREATE TABLE dbo.orders (id int IDENTITY(1,1) PRIMARY KEY, sku nvarchar(40) NOT NULL);
GO
INSERT INTO dbo.orders (sku) VALUES (@sku); -- HAZARD OW201
INSERT dbo.orders (sku) SELECT sku FROM dbo.wanted -- HAZARD OW201
GO
-- ====
-- onceward: dialect tsql
CREATE PROCEDURE dbo.place @sku nvarchar(40) AS
BEGIN
    IF NOT EXISTS (SELECT 1 FROM dbo.orders WHERE sku = @sku)
        INSERT INTO dbo.orders (sku) VALUES (@sku); -- HAZARD OW211
END
GO
-- ====
-- onceward: dialect tsql
CREATE PROC put_setting @name nvarchar(40), @value nvarchar(40) AS
UPDATE settings SET value = @value WHERE name = @name
IF @@ROWCOUNT = 0
    INSERT INTO settings (name, value) VALUES (@name, @value) -- HAZARD OW211
GO
-- ====
-- onceward: dialect tsql
MERGE INTO dbo.keys WITH (HOLDLOCK) AS t USING (SELECT @k AS k) AS s ON t.k = s.k -- HAZARD OW210
WHEN NOT MATCHED THEN INSERT (k) VALUES (s.k);
-- ====
-- onceward: dialect tsql
CREATE TABLE keys (idempotency_key varchar(100) NOT NULL PRIMARY KEY);
GO
CREATE PROCEDURE charge (@key varchar(100), @amount decimal(19, 4)) AS
BEGIN
    INSERT INTO charges (reference, amount) -- HAZARD OW211
    SELECT @key, @amount WHERE NOT EXISTS (SELECT 1 FROM charges WHERE reference = @key);
    INSERT INTO keys (idempotency_key) VALUES (@key); -- HAZARD OW202 OW214
END
-- ====
-- onceward: dialect tsql
CREATE TABLE keys (idempotency_key varchar(100) NOT NULL PRIMARY KEY);
GO
CREATE PROCEDURE charge @key varchar(100), @amount money AS
BEGIN
    BEGIN TRANSACTION;
    UPDATE balances SET amount = amount - @amount;
    COMMIT TRANSACTION;
    BEGIN TRANSACTION;
    INSERT INTO keys (idempotency_key) VALUES (@key); -- HAZARD OW202 OW214
    COMMIT TRANSACTION;
END
-- ====
-- onceward: dialect tsql
CREATE TABLE keys (idempotency_key varchar(100) NOT NULL PRIMARY KEY);
GO
CREATE PROCEDURE charge @key varchar(100) AS
BEGIN TRY
    INSERT INTO keys (idempotency_key) VALUES (@key);
END TRY
BEGIN CATCH -- HAZARD OW212
    RETURN 0;
END CATCH
-- ====
-- onceward: dialect tsql
CREATE TABLE keys (idempotency_key nchar(36) NOT NULL CONSTRAINT pk_keys PRIMARY KEY); -- HAZARD OW213
